/* Shared by the tests of codelets: a task must give the same bits as the kernels called
 * directly. */
#ifndef SP_TESTS_ENGINE_CODELETS_H
#define SP_TESTS_ENGINE_CODELETS_H

#include "engine/tensors.h"
#include "codelets/norms.h"
#include "codelets/projections.h"
#include "kernels/kernels.h"

enum { BATCH = 2, SEQ = 7, T = BATCH * SEQ };

/* The ways in which a forward keeps tensors for its backward. */
static const struct variant {
    bool saved, keep_outputs;
} variants[] = {{false, false}, {true, false}, {true, true}};

static inline struct sp_shape shape_of(enum small which, int mlp_rows, int head_rows)
{
    struct sp_model m = small_model(which);
    struct sp_shape sh;

    sp_shape_init(&sh, &m, BATCH, SEQ, 3);
    sp_shape_cut(&sh, mlp_rows, head_rows);
    return sh;
}

static inline struct tensor block(const struct sp_shape *sh, enum sp_block_kind kind, uint64_t seed)
{
    return random_tensor(sp_block_elements(&sh->model, kind), seed);
}

static inline float *copy(const struct tensor *t)
{
    return memcpy(test_bytes(t->n * sizeof *t->at), t->at, t->n * sizeof *t->at);
}

/* The sums of a step; handle: for tasks that add to them. */
struct tally {
    double *at; /* [SP_TALLIES] */
    struct sp_tensor *handle;
};

/* Takes the values of matrices away from a gradient, which counts as 0 there: in ref. */
static inline void make_stale(const struct sp_shape *sh, enum sp_block_kind kind, struct tensor *g,
                              float *ref)
{
    g->handle->stale = (unsigned char)sp_matrices(kind);
    for (int of = SP_TO_QKV; of <= SP_TO_DOWN; of++) {
        const struct sp_projection p = sp_projection(sh, (enum sp_projection_of)of, 1);

        for (int i = 0; g->handle->stale >> of & 1 && i < p.in * p.out; i++) {
            g->at[p.weight + (size_t)i] = NAN;
            ref[p.weight + (size_t)i] = 0;
        }
    }
}

static inline struct tally tally_of(double loss, double sumsq)
{
    struct tally t = {.at = test_bytes(SP_TALLIES * sizeof(double))};

    t.at[SP_TALLY_LOSS] = loss;
    t.at[SP_TALLY_SUMSQ] = sumsq;
    t.handle = tensor_at(t.at, SP_TALLIES, sizeof(double));
    return t;
}

/* ---- the parts of a layer, for the kernels ---- */

/* Rows from, from + 1, ... of the product before attention. */
static inline struct sp_linear qkv_product(const struct sp_shape *sh, float *w, int from, int rows)
{
    float *bias = sp_at(w, sh->qkv_bias);

    return (struct sp_linear){.T = T,
                              .in = sh->model.hidden,
                              .out = rows,
                              .w = w + sh->qkv + from * sh->model.hidden,
                              .bias = bias ? bias + from : NULL};
}

static inline struct sp_linear out_product(const struct sp_shape *sh, float *w)
{
    return (struct sp_linear){.T = T,
                              .in = sh->q_width,
                              .out = sh->model.hidden,
                              .w = w + sh->out,
                              .bias = sp_at(w, sh->out_bias)};
}

static inline struct sp_linear up_product(const struct sp_shape *sh, int rows, float *w)
{
    return (struct sp_linear){.T = rows,
                              .in = sh->model.hidden,
                              .out = sh->up_width,
                              .w = w + sh->up,
                              .bias = sp_at(w, sh->up_bias)};
}

static inline struct sp_linear down_product(const struct sp_shape *sh, int rows, float *w)
{
    return (struct sp_linear){.T = rows,
                              .in = sh->model.mlp,
                              .out = sh->model.hidden,
                              .w = w + sh->down,
                              .bias = sp_at(w, sh->down_bias)};
}

/* The norm of `rows` heads of queries or keys. */
static inline struct sp_norm head_norm(const struct sp_shape *sh, int rows, const float *gain)
{
    return (struct sp_norm){
        .rms = true, .T = rows, .h = sh->model.head_dim, .eps = sh->model.norm_eps, .gain = gain};
}

static inline void rotate(const struct sp_shape *sh, bool inverse, float *q, float *kv)
{
    struct sp_rotation r = {.batch = BATCH,
                            .len = SEQ,
                            .heads = sh->model.heads,
                            .d = sh->model.head_dim,
                            .ld = sh->q_width,
                            .rope = &sh->model.rope};

    if (!sh->rms)
        return;
    sp_rope(&r, inverse, q);
    r.heads = sh->model.kv_heads;
    r.ld = sh->kv_width;
    sp_rope(&r, inverse, kv);
}

static inline void activate(const struct sp_shape *sh, int rows, const float *u, float *g)
{
    if (sh->rms)
        sp_gated(&(struct sp_gated){.act = SP_SILU, .T = rows, .f = sh->model.mlp}, u, g);
    else
        sp_activation(SP_GELU_TANH, (size_t)(rows * sh->model.mlp), u, g);
}

/* A head that reads x(T,h); `rows` of logits at a time. */
static inline struct sp_logits head_of(const struct sp_shape *sh, const float *x, const float *w,
                                       const int32_t *targets)
{
    size_t logits = (size_t)sh->head_rows * (size_t)sp_logits_ld(sh->model.vocab);

    return (struct sp_logits){.T = T,
                              .h = sh->model.hidden,
                              .V = sh->model.vocab,
                              .rows = sh->head_rows,
                              .x = x,
                              .w = w,
                              .targets = targets,
                              .scale = sh->loss_scale,
                              .scratch = floats(logits)};
}

static inline void for_each_shape(void (*fn)(const struct sp_shape *sh))
{
    static const int cuts[] = {0, 4, 5, 14, 1};

    for (int which = 0; which < SMALL_MODELS; which++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            struct sp_shape sh = shape_of((enum small)which, cuts[i], cuts[i]);
            size_t held = test_held();

            fn(&sh);
            test_end_after(held);
        }
}

#endif
