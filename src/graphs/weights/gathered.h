/*
 * A parameter block in one buffer that is registered as a whole and as the parts that stages or
 * pipelines hold. At any time either the whole or the parts are in use; the sink switches between
 * the two views without a copy.
 */
#ifndef SP_GATHERED_H
#define SP_GATHERED_H

#include "sinks/sink.h"

struct sp_gathered {
    struct sp_tensor *whole; /* n elements */
    struct sp_tensor **part; /* [parts] n / parts elements, the first n % parts of them one more */
    int parts;
    bool cut;
    void *memory;
};

/* n is at least the number of parts. The buffer starts as zeros. 0 or -ENOMEM. */
int sp_gathered_create(struct sp_sink *s, struct sp_gathered *w, size_t n, int parts,
                       size_t elem_bytes);
/* Waits for the tasks that use it. */
void sp_gathered_destroy(struct sp_gathered *w);

/* Switch to the parts, or to the whole; no effect if that is the current view. */
void sp_gathered_cut(struct sp_gathered *w);
void sp_gathered_join(struct sp_gathered *w);

size_t sp_gathered_bytes(const struct sp_gathered *w);

#endif
