/*
 * Every kernel of a backend against that of another one: both get the same calls on the same values,
 * and each output is compared. Outputs start as NaN, and what follows an array must stay.
 */
#ifndef SP_TESTS_KERNELS_COMPARISON_H
#define SP_TESTS_KERNELS_COMPARISON_H

#include "reference.h"
#include "kernels/backend.h"

enum side {
    TESTED,
    RIGHT, /* on the CPU */
    SIDES
};

/* An array for each backend. */
struct tensor {
    size_t n;
    bool f32;   /* of that type whatever the backends' */
    bool rough; /* f32 sums of values that were rounded */
    void *at[SIDES];
};

struct comparison {
    const struct sp_backend *backends[SIDES];
    /* The memory of the tested backend, if it is not that of the CPU: an array, which `release` frees; copies into
     * it; copies out of it, when the kernels have run. */
    void *(*alloc)(size_t bytes, size_t elem);              /* of elements of so many bytes */
    void *(*put)(void *to, const void *from, size_t bytes); /* these return `to` */
    void *(*get)(void *to, const void *from, size_t bytes);
    void (*release)(void);
    /* Fails if `got` is too far from `want`: the n elements of an output as floats. */
    void (*judge)(const char *what, const struct tensor *x, size_t n, const float *got,
                  const float *want);
    double loss_error; /* at most, relative to the loss */
};

/* Random values, the same for both; as they are in the narrower type, unless `f32`. */
struct tensor tensor_filled(const struct comparison *c, size_t n, uint64_t seed, bool f32);
/* From -6 to 6, where activations bend. */
struct tensor tensor_spread(const struct comparison *c, size_t n, uint64_t seed);
struct tensor tensor_empty(const struct comparison *c, size_t n, bool f32);

/* The values of one side; what follows them was not written. */
float *tensor_values(const struct comparison *c, const struct tensor *x, enum side side);

/* Compares an output; all of it was to be written. */
void tensor_check(const struct comparison *c, const char *what, const struct tensor *x);

/* With the CPU's f32 kernels: a result must be what they compute, rounded once. */
struct comparison compare_rounded(const struct sp_backend *tested);

/* The products of a layer, given T, in and out; the leading dimension of y is out + pad. */
void compare_forward(const struct comparison *c, struct sp_linear l, int pad);
void compare_backward(const struct comparison *c, struct sp_linear l, int pad);
void compare_norms(const struct comparison *c, int T, int h);
/* The last slice of queries of B sequences in n_kv slices of keys. */
void compare_attention(const struct comparison *c, struct sp_attention at);
/* `gap`: elements between rows */
void compare_rope(const struct comparison *c, struct sp_rotation r, int gap, bool inverse);
void compare_mlp(const struct comparison *c, int T, int f);
void compare_embed(const struct comparison *c, struct sp_embed e, int V);
void compare_head(const struct comparison *c, int T, int h, int V, int rows);
void compare_update(const struct comparison *c, size_t n);

#endif
