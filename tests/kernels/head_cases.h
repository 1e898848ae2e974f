/* The head of a model, logits and cross-entropy, on any backend. */
#ifndef SP_TESTS_KERNELS_HEAD_CASES_H
#define SP_TESTS_KERNELS_HEAD_CASES_H

#include "typed.h"

static inline struct sp_logits head_of(int T, int h, int V, int rows)
{
    return (struct sp_logits){.T = T, .h = h, .V = V, .rows = rows, .scale = 0.125f};
}

/* The same head with other arrays. */
static inline struct sp_logits head_with(struct sp_logits head, const void *x, const void *w,
                                         void *scratch)
{
    head.x = x;
    head.w = w;
    head.scratch = scratch;
    return head;
}

/* The loss and dx of one call in f32, which `wait` waits for. */
static inline double head_loss(const struct sp_backend *k, void (*wait)(void),
                               struct sp_logits head, float *dx)
{
    double loss = 0;
    float *scratch = new_nan((size_t)head.rows * (size_t)sp_logits_ld(head.V));

    head = head_with(head, head.x, head.w, scratch);
    k->cross_entropy(k, &head, &loss, dx, NULL);
    if (wait)
        wait();
    return loss;
}

/* Logits of several hundred: the maximum must be taken out. And minus infinity among them. */
static inline void head_check_large(const struct sp_backend *k, void (*wait)(void))
{
    const float x[2] = {1, -1}, w[3] = {400, 100, -300}, infinite[3] = {1, -INFINITY, 2};
    const int32_t targets[2] = {1, 1}, first[1] = {0};
    struct sp_logits head = {.T = 2, .h = 1, .V = 3, .rows = 2, .targets = targets, .scale = 1};
    float dx[2];
    double loss = head_loss(k, wait, head_with(head, x, w, NULL), dx);

    printf("    loss %g, dx %g %g\n", loss, (double)dx[0], (double)dx[1]);
    assert_true(fabs(loss - (300 + 400)) < 1e-3);
    assert_true(fabsf(dx[0] - 300) < 1e-3f && fabsf(dx[1] + 400) < 1e-3f);
    head.T = 1;
    head.targets = first;
    loss = head_loss(k, wait, head_with(head, x, infinite, NULL), NULL);
    assert_true(fabs(loss - log(1 + exp(1))) < 1e-6);
}

/* A NaN upstream must reach the loss, and only its own row. */
static inline void head_check_nan(const struct sp_backend *k, void (*wait)(void))
{
    const float x[4] = {1, 2, NAN, 4}, w[6] = {1, 2, 3, 4, 5, 6};
    const struct sp_logits head = {.T = 2,
                                   .h = 2,
                                   .V = 3,
                                   .rows = 2,
                                   .x = x,
                                   .w = w,
                                   .targets = (const int32_t[]){1, 1},
                                   .scale = 1};
    float dx[4];

    assert_true(isnan(head_loss(k, wait, head, dx)) && !isnan(dx[0]) && isnan(dx[2]));
}

#endif
