/*
 * Attention of any backend: whole sequences in slices against double loops, each slice of keys by itself and
 * merged, keys that no query sees, scores far apart.
 */
#ifndef SP_TESTS_KERNELS_ATTENTION_CASES_H
#define SP_TESTS_KERNELS_ATTENTION_CASES_H

#include "typed.h"

enum { MOST_SLICES = 300 };

struct attention_test {
    const struct sp_backend *backend;
    void (*wait)(void); /* until its kernels have run; NULL: they have */
    /* Sets what must not change a bit of the results, for every i below `variants`. */
    void (*vary)(unsigned i);
    unsigned variants;
    /* Relative to the largest element, beyond the rounding of a result to the type. */
    double tolerance_o, tolerance_lse, tolerance_gradients;
};

struct attention_shape {
    int batch, heads, kv_heads, d;
    int lens[MOST_SLICES]; /* of the slices, up to a 0 */
};

void attention_check(const struct attention_test *t, const struct attention_shape *s);

/* Keys after those that the last of q_len queries, from q_pos on, sees must not be read into anything. Their
 * gradients are left, or become 0 where the gradients are written. */
void attention_check_keys_beyond(const struct attention_test *t, int d, int q_len, int q_pos,
                                 int len);

/* Scores a thousand apart: one key takes all, nothing overflows, and a NaN stays in its row. In f32. */
void attention_check_extreme(const struct attention_test *t);

/* Arrays of the backend's type, as sp_attention has them. */
struct attention_arrays {
    const void *q, *d_o;
    void *const *kv, *const *dkv;
    void *o, *dq; /* no dq: forward */
    float *lse;
    bool first; /* dkv = instead of += */
};

/* One call, waited for; its arguments are overwritten before the kernels run. */
void attention_call(const struct attention_test *t, const struct sp_attention *at,
                    const struct attention_arrays *a);

#endif
