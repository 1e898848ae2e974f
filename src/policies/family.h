/*
 * A graph family as the orders see it: which ops must exist, on which stage, what each waits for
 * and which tensors cross between stages. Pure; src/graphs/ turns it into StarPU tasks.
 */
#ifndef SP_FAMILY_H
#define SP_FAMILY_H

#include "policies/map.h"
#include <stdbool.h>

#define SP_MAX_DEPS 8

/* One thing an op waits for. */
struct sp_dep {
    int stage;       /* where the producer runs */
    struct sp_op op; /* the producer */
};

struct sp_family {
    const char *name;
    int pipes; /* copies of the model that micro-batches may go through; see policies/map.h */

    /* Dense number of an op in 0 .. ids(lay)-1, -1 if the family has no such op there. */
    int (*id)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    int (*ids)(const struct sp_layout *lay);

    /* Producers an op waits for; `split`: the schedule separates W from B. Returns how many. */
    int (*deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS]);

    /* Calls `need` for every op that a complete schedule must hold (W and R excepted). */
    void (*required)(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg);
};

const struct sp_family *sp_family_find(const char *name);
/* The i-th family, NULL past the end. */
const struct sp_family *sp_family_at(int i);

#endif
