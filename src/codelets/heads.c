#include "codelets/heads.h"

/* Places of queries or of keys: rows of the product's matrix, and the gain of their heads. */
struct heads {
    int n, width;
    size_t weight, bias, gain; /* (size_t)-1: none */
};

static struct heads queries(const struct sp_shape *sh)
{
    return (struct heads){sh->model.heads, sh->q_width, sh->qkv, sh->qkv_bias, sh->q_gain};
}

static struct heads keys(const struct sp_shape *sh)
{
    return (struct heads){sh->model.kv_heads, sh->kv_width / 2, sp_kv_rows(sh), sp_kv_bias(sh),
                          sh->k_gain};
}

size_t sp_heads_scratch(const struct sp_shape *sh)
{
    const struct sp_shape *longest = sp_shape_scratch(sh);
    size_t T = (size_t)longest->rows;

    if (!sh->model.qk_norm)
        return 0;
    return 2 * T * (size_t)sh->q_width + sp_shape_f32(sh, 2 * T * (size_t)sh->model.heads);
}

double sp_heads_flops(const struct sp_shape *sh)
{
    return sp_flops_linear(sh->rows, sh->model.hidden, sh->q_width + sh->kv_width / 2);
}

/* The three parts of the scratch: heads before the norm, heads after it, statistics. */
struct scratch {
    void *raw, *normed;
    float *stats;
};

static struct scratch parts_of(const struct sp_shape *sh, void *base)
{
    size_t n = (size_t)sh->rows * (size_t)sh->q_width;

    return (struct scratch){base, sp_skip(sh, base, n), sp_skip(sh, base, 2 * n)};
}

/* raw(T,width) = n1 W^T + b, and normed = norm(raw), with statistics. Forward and backward share
 * it, so that both get the same bits. */
static void normalise(const struct sp_backend *k, const struct sp_shape *sh, struct heads of,
                      const void *n1, void *w, struct scratch s)
{
    k->linear(k,
              &(struct sp_linear){.T = sh->rows,
                                  .in = sh->model.hidden,
                                  .out = of.width,
                                  .w = sp_weight_at(sh, w, of.weight),
                                  .bias = sp_weight_at(sh, w, of.bias)},
              n1, s.raw);
    k->norm(k,
            &(struct sp_norm){.rms = true,
                              .T = sh->rows * of.n,
                              .h = sh->model.head_dim,
                              .eps = sh->model.norm_eps,
                              .gain = sp_weight_at(sh, w, of.gain)},
            s.raw, s.normed, s.stats);
}

void sp_heads_forward(const struct sp_backend *k, const struct sp_shape *sh, const void *n1,
                      void *w, void *scratch, void *q, void *kv)
{
    struct scratch s = parts_of(sh, scratch);
    struct heads of = queries(sh);
    size_t T = (size_t)sh->rows, elem = sp_shape_elem(sh), h = (size_t)sh->model.hidden, width;

    normalise(k, sh, of, n1, w, (struct scratch){s.raw, q, s.stats});
    if (!kv)
        return;
    of = keys(sh);
    width = (size_t)of.width;
    normalise(k, sh, of, n1, w, s);
    k->copy_rows(k,
                 &(struct sp_row_copy){
                     .n = T, .bytes = width * elem, .from = width * elem, .to = 2 * width * elem},
                 s.normed, kv);
    k->linear(k,
              &(struct sp_linear){
                  .T = sh->rows,
                  .in = sh->model.hidden,
                  .out = of.width,
                  .w = sp_weight_at(sh, w, of.weight + width * h),
                  .bias = of.bias == (size_t)-1 ? NULL : sp_weight_at(sh, w, of.bias + width),
                  .ld = 2 * of.width},
              n1, sp_skip(sh, kv, width));
}

/* dy(T,width) = norm'(dy), gain += ; dx overwrites dy row by row. */
static void norm_backward(const struct sp_backend *k, const struct sp_shape *sh, struct heads of,
                          void *w, struct scratch s, void *dy, float *gain)
{
    k->norm_bwd(k,
                &(struct sp_norm){.rms = true,
                                  .T = sh->rows * of.n,
                                  .h = sh->model.head_dim,
                                  .gain = sp_weight_at(sh, w, of.gain)},
                s.raw, s.stats, &(struct sp_norm_bwd){.dy = dy, .dx = dy, .dgain = gain});
}

void sp_heads_backward(const struct sp_backend *k, const struct sp_shape *sh, const void *n1,
                       void *w, void *scratch, void *dq, void *dkv, float *gains)
{
    struct scratch s = parts_of(sh, scratch);
    struct heads of = queries(sh);
    size_t T = (size_t)sh->rows, elem = sp_shape_elem(sh), row;

    normalise(k, sh, of, n1, w, s);
    norm_backward(k, sh, of, w, s, dq, gains);
    of = keys(sh);
    row = (size_t)of.width * elem;
    normalise(k, sh, of, n1, w, s);
    k->copy_rows(k, &(struct sp_row_copy){.n = T, .bytes = row, .from = 2 * row, .to = row}, dkv,
                 s.normed);
    norm_backward(k, sh, of, w, s, s.normed, gains + (sh->k_gain - sh->q_gain));
    k->copy_rows(k, &(struct sp_row_copy){.n = T, .bytes = row, .from = row, .to = 2 * row},
                 s.normed, dkv);
}
