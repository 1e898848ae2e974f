/* Causal attention over whole sequences by double loops, with its gradient. */
#ifndef SP_TESTS_KERNELS_ATTENTION_REFERENCE_H
#define SP_TESTS_KERNELS_ATTENTION_REFERENCE_H

#include "reference.h"

/* Whole sequences of `len` rows in double: q, o (batch, len, a*d); kv (batch, len, 2*g*d). */
struct whole {
    int batch, len, heads, kv_heads, d;
    double *q, *kv, *o, *lse, *d_o, *dq, *dkv; /* the loss is sum of d_o * o */
};

static inline double *q_row(const struct whole *r, double *x, int b, int t, int head)
{
    return x + ((b * r->len + t) * r->heads + head) * r->d;
}

static inline double *k_row(const struct whole *r, double *x, int b, int t, int kv_head)
{
    return x + ((b * r->len + t) * 2 * r->kv_heads + kv_head) * r->d;
}

/* One query: o and lse; with `gradient`, its share of dq and dkv. */
static inline void reference_query(struct whole *r, int b, int head, int t, double *p,
                                   bool gradient)
{
    int kv_head = head / (r->heads / r->kv_heads), to_v = r->kv_heads * r->d;
    double scale = 1 / sqrt(r->d), max = -INFINITY, sum = 0, mean = 0;
    double *q = q_row(r, r->q, b, t, head), *o = q_row(r, r->o, b, t, head);
    double *d_o = q_row(r, r->d_o, b, t, head), *dq = q_row(r, r->dq, b, t, head);

    for (int j = 0; j <= t; j++) {
        double *k = k_row(r, r->kv, b, j, kv_head);

        p[j] = 0;
        for (int i = 0; i < r->d; i++)
            p[j] += scale * q[i] * k[i];
        max = fmax(max, p[j]);
    }
    for (int j = 0; j <= t; j++)
        sum += exp(p[j] - max);
    r->lse[(b * r->heads + head) * r->len + t] = max + log(sum);
    for (int i = 0; i < r->d; i++)
        o[i] = 0;
    for (int j = 0; j <= t; j++) {
        double *v = k_row(r, r->kv, b, j, kv_head) + to_v;

        p[j] = exp(p[j] - max) / sum;
        for (int i = 0; i < r->d; i++)
            o[i] += p[j] * v[i];
    }
    for (int i = 0; i < r->d; i++)
        mean += o[i] * d_o[i];
    for (int j = 0; j <= t && gradient; j++) {
        double *k = k_row(r, r->kv, b, j, kv_head), *dk = k_row(r, r->dkv, b, j, kv_head);
        double ds = -mean;

        for (int i = 0; i < r->d; i++)
            ds += d_o[i] * k[to_v + i];
        ds *= p[j];
        for (int i = 0; i < r->d; i++) {
            dk[to_v + i] += p[j] * d_o[i];
            dk[i] += scale * ds * q[i];
            dq[i] += scale * ds * k[i];
        }
    }
}

static inline void reference(struct whole *r, bool gradient)
{
    double *p = test_bytes((size_t)r->len * sizeof *p);

    for (int b = 0; b < r->batch; b++)
        for (int head = 0; head < r->heads; head++)
            for (int t = 0; t < r->len; t++)
                reference_query(r, b, head, t, p, gradient);
}

#endif
