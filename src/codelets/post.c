/*
 * Post-attention part of a layer, one micro-batch:
 *
 *   r(T,h) = x + o Wo^T + bo       n2 = norm2(r)       u(T,up) = n2 Wup^T + bup
 *   g(T,f) = act(u)                y(T,h) = r + g Wdown^T + bdown
 *
 * act is GELU-tanh, or SwiGLU on (gate, up). Everything after r is computed mlp_rows rows at a
 * time. If the output product is in the attention op (out.c), there is no o, and x is r.
 *
 * Backward B, from dy:
 *   was: y = r + g Wdown^T     so: dg = dy Wdown, dr = dy
 *   was: g = act(u)            so: du = act'(u) dg
 *   was: u = n2 Wup^T          so: dn2 = du Wup
 *   was: n2 = norm2(r)         so: dr += norm2'(dn2); gain, bias +=
 *   was: r = x + o Wo^T        so: do = dr Wo; dr goes on to x
 * Backward W: dWdown += dy^T g, dWup += du^T n2, dWo += dr^T o.
 *
 * If u is not kept, post_again.c does both in one task.
 */
#include "codelets/insert.h"
#include "codelets/mlp.h"
#include "codelets/norms.h"

struct post_args {
    struct sp_task_args base;
    bool keep_outputs;
    bool residual; /* only r is kept */
    bool apart;    /* the gradient of norm2 is laid out like one of norm1 */
};

/* Scratch of the forward, for all that is not kept: r in full, the rest for one chunk. */
static size_t fwd_scratch(const struct sp_shape *sh, const struct sp_post *t)
{
    size_t part = (size_t)sh->mlp_rows, h = (size_t)sh->model.hidden, n = 0;

    if (t->saved && t->residual)
        return sp_shape_post_chunk(sh); /* post_again needs this size: both share one buffer */
    if (!t->saved)
        n += (t->o ? (size_t)sh->rows * h : 0) + part * (size_t)sh->up_width;
    if (!t->saved || !t->keep_outputs)
        n += part * (h + (size_t)sh->model.mlp);
    return n;
}

#define POST_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(x, SP_READ)               /* (T,h) */                                                      \
    OPTIONAL(o, SP_READ)          /* (T,q) */                                                      \
    ONE(w, SP_READ)               /* block of the layer's second half */                           \
    OPTIONAL(y, SP_WRITE)         /* = (T,h) */                                                    \
    OPTIONAL(saved, SP_WRITE)     /* = sp_shape_post_saved, sp_shape_residual_saved */             \
    OPTIONAL(scratch, SP_SCRATCH) /* what is not kept: fwd_scratch */
SP_BUFFERS(post_fwd, POST_FWD_BUFFERS)

static void post_fwd(const struct sp_backend *k, const struct post_fwd_buffers *b,
                     const struct post_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp;
    size_t part = (size_t)sh->mlp_rows;
    struct sp_post_saved s = {0};
    void *scratch = b->scratch, *u = NULL, *g = NULL, *n2 = NULL, *w = b->w;
    const struct sp_linear out = sp_linear_of(sh, SP_TO_OUT, T, w);
    struct sp_linear down = sp_linear_of(sh, SP_TO_DOWN, T, w);

    if (b->saved) {
        s = a->residual ? sp_shape_residual_view(sh, b->saved)
                        : sp_shape_post_view(sh, a->keep_outputs, b->saved);
    } else if (b->o) {
        s.r = scratch;
        scratch = sp_skip(sh, scratch, (size_t)T * (size_t)h);
    } else {
        s.r = b->x;
    }
    if (!s.u) {
        u = scratch;
        scratch = sp_skip(sh, u, part * (size_t)sh->up_width);
    }
    if (!s.n2) {
        n2 = scratch;
        g = sp_skip(sh, n2, part * (size_t)h);
    }

    if (b->o)
        k->linear_add(k, &out, b->o, b->x, s.r);
    else if (b->saved)
        k->copy(k, (size_t)T * (size_t)h * sp_shape_elem(sh), b->x, s.r);
    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
        const struct sp_norm norm = sp_post_norm(sh, rows, w);
        size_t row = (size_t)t, at = row * (size_t)h;
        void *rt = sp_skip(sh, s.r, at), *nt = s.n2 ? sp_skip(sh, s.n2, at) : n2;
        void *ut = s.u ? sp_skip(sh, s.u, row * (size_t)sh->up_width) : u;
        void *gt = s.g ? sp_skip(sh, s.g, row * (size_t)f) : g;

        k->norm(k, &norm, rt, nt, s.stats ? s.stats + 2 * row : NULL);
        if (b->y || s.u)
            sp_mlp_up(k, &(struct sp_mlp){sh, rows, w, ut}, nt, b->y || s.g ? gt : NULL);
        down.T = rows;
        if (b->y)
            k->linear_add(k, &down, gt, rt, sp_skip(sh, b->y, at));
    }
    if (b->y)
        sp_check_finite(&a->base, k, "y", b->y, (size_t)T * (size_t)h);
}

#define POST_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(saved, SP_READ)      /* sp_shape_post_saved */                                             \
    ONE(w, SP_READ)          /* block of the layer's second half */                                \
    ONE(g, SP_ADD)           /* += gain and bias of norm2: in the block, or apart */               \
    ONE(dy, SP_READ)         /* (T,h) */                                                           \
    ONE(du, SP_WRITE)        /* = (T,up) */                                                        \
    ONE(dr, SP_WRITE)        /* = (T,h) */                                                         \
    OPTIONAL(d_o, SP_WRITE)  /* = (T,q) */                                                         \
    OPTIONAL(dg, SP_SCRATCH) /* (mlp_rows,f), for SwiGLU */
SP_BUFFERS(post_bwd, POST_BWD_BUFFERS)

static void post_bwd(const struct sp_backend *k, const struct post_bwd_buffers *b,
                     const struct post_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_post_norm(sh, sh->rows, b->w);
    int T = sh->rows, h = sh->model.hidden;
    struct sp_post_saved s = sp_shape_post_view(sh, a->keep_outputs, b->saved);
    const struct sp_linear out = sp_linear_of(sh, SP_TO_OUT, T, b->w);
    float *g = b->g;

    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
        size_t row = (size_t)t, at = row * (size_t)h, at_u = row * (size_t)sh->up_width;
        const struct sp_mlp mlp = {sh, rows, b->w, sp_skip(sh, s.u, at_u)};

        /* dr holds dn2 until norm2's backward overwrites it. */
        sp_mlp_backward(k, &mlp, sp_skip(sh, b->dy, at), b->dg, sp_skip(sh, b->du, at_u),
                        sp_skip(sh, b->dr, at));
    }
    k->norm_bwd(k, &norm, s.r, s.stats,
                &(struct sp_norm_bwd){.dy = b->dr,
                                      .dres = b->dy,
                                      .dx = b->dr,
                                      .dgain = g + (a->apart ? 0 : sh->gain),
                                      .dbias = sp_at(g, a->apart ? sh->norm_bias : sh->bias)});
    sp_check_finite(&a->base, k, "dr", b->dr, (size_t)T * (size_t)h);
    if (!b->d_o)
        return;
    k->linear_dx(k, &out, b->dr, b->d_o, false);
    sp_check_finite(&a->base, k, "do", b->d_o, (size_t)T * (size_t)sh->q_width);
}

/* w and scratch serve to compute n2 and g, unless saved holds them. */
#define POST_WGRAD_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(saved, SP_READ)           /* sp_shape_post_saved */                                        \
    OPTIONAL(o, SP_READ)          /* (T,q) */                                                      \
    ONE(g, SP_ADD)                /* += products' weights and biases in the block */               \
    ONE(dy, SP_READ)              /* (T,h) */                                                      \
    ONE(du, SP_READ)              /* (T,up) */                                                     \
    ONE(dr, SP_READ)              /* (T,h) */                                                      \
    OPTIONAL(w, SP_READ)          /* block of the layer's second half */                           \
    OPTIONAL(scratch, SP_SCRATCH) /* n2(T,h), then g(T,f) */
SP_BUFFERS(post_wgrad, POST_WGRAD_BUFFERS)

static void post_wgrad(const struct sp_backend *k, const struct post_wgrad_buffers *b,
                       const struct post_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_post_norm(sh, sh->rows, b->w);
    int T = sh->rows;
    struct sp_post_saved s = sp_shape_post_view(sh, a->keep_outputs, b->saved);

    if (b->o)
        sp_projection_wgrad(k, sp_projection(sh, SP_TO_OUT, T), a->base.overwrites, b->o, b->dr,
                            b->g);
    if (!a->keep_outputs) {
        s.g = s.n2 = b->scratch;
        k->norm_apply(k, &norm, s.r, s.stats, s.n2);
    }
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_UP, T), a->base.overwrites, s.n2, b->du, b->g);
    if (!a->keep_outputs)
        sp_mlp_activate(k, &(struct sp_mlp){.sh = sh, .rows = T, .u = s.u}, s.g);
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_DOWN, T), a->base.overwrites, s.g, b->dy, b->g);
}

SP_CODELET(post_fwd);
SP_CODELET(post_bwd);
SP_CODELET(post_wgrad);

static double product_flops(const struct sp_shape *sh, bool out, bool up, bool down)
{
    const struct sp_model *m = &sh->model;

    return sh->rows * ((out ? sp_product_flops(m, SP_ROLE_OUT) : 0) +
                       (up ? sp_product_flops(m, SP_ROLE_UP) : 0) +
                       (down ? sp_product_flops(m, SP_ROLE_DOWN) : 0));
}

void sp_post_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *y,
                        int64_t stashed)
{
    struct sp_task *task = sp_task_new(ctx, &post_fwd_cl, "post", sh, sizeof(struct post_args));
    struct post_args *a = task->args;
    bool saved = t->saved != NULL;
    size_t scratch = fwd_scratch(sp_shape_scratch(sh), t);

    a->keep_outputs = t->keep_outputs;
    a->residual = saved && t->residual;
    a->base.variant = (uint32_t)(16 * (t->o == NULL) + 8 * a->residual + 4 * (y != NULL) +
                                 2 * saved + t->keep_outputs);
    SP_TASK_BUFFERS(task, post_fwd, .x = t->x, .o = t->o, .w = w, .y = y, .saved = t->saved,
                    .scratch = scratch ? sp_scratch_handle(ctx, sh, scratch) : NULL);
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, product_flops(sh, t->o != NULL, y || !a->residual, y != NULL));
}

void sp_post_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                        bool apart, struct sp_tensor *dy, struct sp_tensor *du,
                        struct sp_tensor *dr, struct sp_tensor *d_o)
{
    struct sp_task *task = sp_task_new(ctx, &post_bwd_cl, "post", sh, sizeof(struct post_args));
    struct post_args *a = task->args;
    struct sp_tensor *dg = NULL;

    a->keep_outputs = t->keep_outputs;
    a->apart = apart;
    a->base.variant = d_o == NULL;
    if (sh->model.arch == SP_ARCH_LLAMA)
        dg = sp_scratch_handle(ctx, sh,
                               (size_t)sp_shape_scratch(sh)->mlp_rows * (size_t)sh->model.mlp);
    SP_TASK_BUFFERS(task, post_bwd, .saved = t->saved, .w = w, .g = g, .dy = dy, .du = du, .dr = dr,
                    .d_o = d_o, .dg = dg);
    sp_task_submit(ctx, task, product_flops(sh, d_o != NULL, true, true));
}

void sp_post_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                          struct sp_tensor *dy, struct sp_tensor *du, struct sp_tensor *dr,
                          int64_t released)
{
    struct sp_task *task = sp_task_new(ctx, &post_wgrad_cl, "post.w", sh, sizeof(struct post_args));
    struct post_args *a = task->args;
    int wider = sh->model.mlp > sh->model.hidden ? sh->model.mlp : sh->model.hidden;

    a->keep_outputs = t->keep_outputs;
    a->base.variant = (uint32_t)(2 * (t->o == NULL) + t->keep_outputs);
    sp_task_overwrites(task, g, SP_MLP_MATRICES | (t->o ? SP_OUT_MATRIX : 0));
    SP_TASK_BUFFERS(task, post_wgrad, .saved = t->saved, .o = t->o, .g = g, .dy = dy, .du = du,
                    .dr = dr, .w = t->keep_outputs ? NULL : w,
                    .scratch = t->keep_outputs ? NULL : sp_scratch_rows(ctx, sh, wider));
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, product_flops(sh, t->o != NULL, true, true));
}
