/*
 * The rule of `starpipe-ready` (starpipe/order.h), for the scheduler and its simulation. A worker
 * looks at the positions of its program that were not taken, from the first on. It runs the
 * earliest ready one that leaves room for the positions it overtakes: if those acquire and release
 * in program order afterwards, the bytes alive must stay within the bound. The first position needs
 * no room, because the program in its own order fits.
 */
#ifndef SP_OVERTAKING_H
#define SP_OVERTAKING_H

#include <stdbool.h>
#include <stdint.h>

struct sp_overtaking {
    int64_t bound;
    int64_t live, highest; /* if the positions looked at so far run in program order */
};

static inline struct sp_overtaking sp_overtaking_begin(int64_t live, int64_t bound)
{
    return (struct sp_overtaking){.bound = bound, .live = live, .highest = live};
}

/* Returns true if a position that acquires `acquire` bytes may run before those looked at. */
static inline bool sp_overtaking_fits(const struct sp_overtaking *o, int64_t acquire)
{
    return acquire <= 0 || o->highest + acquire <= o->bound;
}

/* Records a position that the next ones would overtake. */
static inline void sp_overtaking_pass(struct sp_overtaking *o, int64_t acquire, int64_t release)
{
    o->live += acquire;
    o->highest = o->live > o->highest ? o->live : o->highest;
    o->live -= release;
}

#endif
