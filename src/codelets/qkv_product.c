#include "codelets/qkv_product.h"

struct sp_qkv sp_qkv_of(const struct sp_task_args *a, const void *n1, void *w, void *scratch,
                        void *q, void *kv)
{
    return (struct sp_qkv){a->shape, a->documents, w, n1, scratch, q, kv};
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

double sp_qkv_flops(const struct sp_shape *sh)
{
    return sh->rows * sp_product_flops(&sh->model, SP_ROLE_QKV);
}

/* ---- places in the matrix -------------------------------------------------------------------- */

/* The n outputs from `first` on, on all rows. */
static struct sp_projection outputs(const struct sp_shape *sh, int first, int n)
{
    return sp_projection_part(sp_projection(sh, SP_TO_QKV, sh->rows), first, n);
}

static struct sp_projection to_q(const struct sp_shape *sh)
{
    return outputs(sh, 0, sh->q_width);
}

static struct sp_projection to_kv(const struct sp_shape *sh)
{
    return outputs(sh, sh->q_width, sh->kv_width);
}

/* ---- norms of heads -------------------------------------------------------------------------- */

/* Heads of queries or of keys: how many, their product, their gain in the block. */
struct heads {
    int n;
    struct sp_projection to;
    size_t gain;
};

static struct heads queries(const struct sp_shape *sh)
{
    return (struct heads){sh->model.heads, to_q(sh), sh->q_gain};
}

static struct heads keys(const struct sp_shape *sh)
{
    return (struct heads){sh->model.kv_heads, outputs(sh, sh->q_width, sh->kv_width / 2),
                          sh->k_gain};
}

static struct sp_norm norm_of(const struct sp_qkv *p, const struct heads *of)
{
    return (struct sp_norm){.rms = true,
                            .T = p->sh->rows * of->n,
                            .h = p->sh->model.head_dim,
                            .eps = p->sh->model.norm_eps,
                            .gain = sp_weight_at(p->sh, p->w, of->gain)};
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
static void normalise(const struct sp_backend *k, const struct sp_qkv *p, const struct heads *of,
                      struct scratch s)
{
    const struct sp_linear to = sp_linear_at(p->sh, of->to, p->w);
    const struct sp_norm norm = norm_of(p, of);

    k->linear(k, &to, p->n1, s.raw);
    k->norm(k, &norm, s.raw, s.normed, s.stats);
}

/* Copies the keys between rows of their own, in `keys`, and rows of kv. */
static void copy_keys(const struct sp_backend *k, const struct sp_shape *sh, void *keys, void *kv,
                      bool into_kv)
{
    size_t row = (size_t)(sh->kv_width / 2) * sp_shape_elem(sh);
    const struct sp_row_copy copy = {.n = (size_t)sh->rows,
                                     .bytes = row,
                                     .from = into_kv ? row : 2 * row,
                                     .to = into_kv ? 2 * row : row};

    k->copy_rows(k, &copy, into_kv ? keys : kv, into_kv ? kv : keys);
}

/* q = norm(n1 Wq^T + bq), keys likewise, values = n1 Wv^T + bv. */
static void heads_forward(const struct sp_backend *k, const struct sp_qkv *p)
{
    const struct sp_shape *sh = p->sh;
    struct scratch s = parts_of(sh, p->scratch);
    struct heads q = queries(sh), kv = keys(sh);
    int half = sh->kv_width / 2;
    struct sp_linear values = sp_linear_at(sh, outputs(sh, sh->q_width + half, half), p->w);

    normalise(k, p, &q, (struct scratch){s.raw, p->q, s.stats});
    if (!p->kv)
        return;
    normalise(k, p, &kv, s);
    copy_keys(k, sh, s.normed, p->kv, true);
    values.ld = sh->kv_width;
    k->linear(k, &values, p->n1, sp_skip(sh, p->kv, (size_t)half));
}

/* dy(T,width) = norm'(dy), gain += ; dx overwrites dy row by row. */
static void norm_backward(const struct sp_backend *k, const struct sp_qkv *p,
                          const struct heads *of, struct scratch s, void *dy, float *gain)
{
    const struct sp_norm norm = norm_of(p, of);

    k->norm_bwd(k, &norm, s.raw, s.stats, &(struct sp_norm_bwd){.dy = dy, .dx = dy, .dgain = gain});
}

/* Takes dq and the keys of dkv, rotated back, through norm' in place. */
static void heads_backward(const struct sp_backend *k, const struct sp_qkv *p, float *gains)
{
    const struct sp_shape *sh = p->sh;
    struct scratch s = parts_of(sh, p->scratch);
    struct heads q = queries(sh), kv = keys(sh);

    normalise(k, p, &q, s);
    norm_backward(k, p, &q, s, p->q, gains);
    normalise(k, p, &kv, s);
    copy_keys(k, sh, s.normed, p->kv, false);
    norm_backward(k, p, &kv, s, s.normed, gains + (sh->k_gain - sh->q_gain));
    copy_keys(k, sh, s.normed, p->kv, true);
}

/* ---- the product ----------------------------------------------------------------------------- */

/* Llama style: rotates q and the keys by their positions in their documents, or rotates them
 * back. */
static void rotate(const struct sp_backend *k, const struct sp_qkv *p, bool inverse)
{
    const struct sp_shape *sh = p->sh;
    const struct sp_model *m = &sh->model;
    struct sp_segment s = {0};

    if (m->arch != SP_ARCH_LLAMA)
        return;
    while (sp_segment_next(sh, p->documents, &s)) {
        struct sp_rotation r = {.batch = s.sequences,
                                .len = s.len,
                                .heads = m->heads,
                                .d = m->head_dim,
                                .ld = sh->q_width,
                                .pos0 = s.position,
                                .skip = sh->stride - 1,
                                .rope = &m->rope};

        k->rope(k, &r, inverse, sp_skip(sh, p->q, s.row * (size_t)sh->q_width));
        r.heads = m->kv_heads;
        r.ld = sh->kv_width;
        if (p->kv)
            k->rope(k, &r, inverse, sp_skip(sh, p->kv, s.row * (size_t)sh->kv_width));
    }
}

void sp_qkv_forward(const struct sp_backend *k, const struct sp_qkv *p)
{
    const struct sp_linear q = sp_linear_at(p->sh, to_q(p->sh), p->w);
    const struct sp_linear kv = sp_linear_at(p->sh, to_kv(p->sh), p->w);

    if (p->sh->model.qk_norm) {
        heads_forward(k, p);
    } else {
        k->linear(k, &q, p->n1, p->q);
        if (p->kv)
            k->linear(k, &kv, p->n1, p->kv);
    }
    rotate(k, p, false);
}

void sp_qkv_backward(const struct sp_backend *k, const struct sp_qkv *p, float *gains, void *dn1)
{
    const struct sp_linear q = sp_linear_at(p->sh, to_q(p->sh), p->w);
    const struct sp_linear kv = sp_linear_at(p->sh, to_kv(p->sh), p->w);

    rotate(k, p, true);
    if (p->sh->model.qk_norm)
        heads_backward(k, p, gains);
    k->linear_dx(k, &q, p->q, dn1, false);
    k->linear_dx(k, &kv, p->kv, dn1, true);
}

void sp_qkv_wgrad(const struct sp_backend *k, const struct sp_qkv *p, unsigned overwrites, float *g)
{
    sp_projection_wgrad(k, to_q(p->sh), overwrites, p->n1, p->q, g);
    sp_projection_wgrad(k, to_kv(p->sh), overwrites, p->n1, p->kv, g);
}
