/*
 * A parameter block in one buffer, beside tensors on the parts of it that stages or pipelines hold: either whole or
 * cut, and the sink changes from one to the other where the graph says so, without a copy.
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

/* n is at least the number of parts. 0 or -ENOMEM. What it holds is 0. */
int sp_gathered_create(struct sp_sink *s, struct sp_gathered *w, size_t n, int parts,
                       size_t elem_bytes);
/* Waits for the tasks that use it. */
void sp_gathered_destroy(struct sp_gathered *w);

/* From here on the parts are used, or the whole; nothing to do if they are already. */
void sp_gathered_cut(struct sp_gathered *w);
void sp_gathered_join(struct sp_gathered *w);

size_t sp_gathered_bytes(const struct sp_gathered *w);

#endif
