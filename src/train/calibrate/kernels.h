/*
 * The kernels that a machine's curves are measured with: their arrays, their calls, and the work of
 * a call.
 */
#ifndef SP_CALIBRATE_KERNELS_H
#define SP_CALIBRATE_KERNELS_H

#include "kernels/backend.h"

enum sp_timed_kernel {
    SP_TIME_LINEAR,        /* rows x in -> out */
    SP_TIME_LINEAR_DX,     /* its input gradient */
    SP_TIME_LINEAR_DW,     /* its weight gradient */
    SP_TIME_ATTENTION,     /* `rows` queries and keys, `heads` heads of `head_dim` */
    SP_TIME_ATTENTION_BWD, /* its backward */
    SP_TIME_NORM,          /* rows x in */
    SP_TIME_ADD,           /* residual: rows x in */
    SP_TIME_GELU,          /* rows x in */
    SP_TIME_ADAMW          /* rows x in parameters */
};

enum { SP_TIMED_ARRAYS = 8 };

struct sp_timed_call {
    enum sp_timed_kernel kernel;
    enum sp_dtype dtype;
    int rows, in, out;
    int heads, head_dim;
};

/* Bytes of the arrays of a call, each in complete cache lines; bytes[] 0: there are no more.
 * Returns their sum. */
size_t sp_timed_bytes(const struct sp_timed_call *c, size_t bytes[SP_TIMED_ARRAYS]);

/* FLOPs of a product or of attention, otherwise bytes read and written. */
double sp_timed_work(const struct sp_timed_call *c);

/* Makes one call, on arrays that follow each other from `place` on. */
void sp_timed_run(const struct sp_backend *k, const struct sp_timed_call *c, char *place);

#endif
