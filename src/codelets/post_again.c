/*
 * Backward of post (post.c), B and W in one task, from the residual stream only:
 *
 *   again: n2 = norm2(r), u = n2 Wup^T + bup, g = act(u)
 *   then:  dg = dy Wdown, du = act'(u) dg, dn2 = du Wup; dWup += du^T n2, dWdown += dy^T g
 *
 * This runs mlp_rows rows at a time, so that u, g and du never exist in full (chunked MLP,
 * HelixPipe section 4.4.2). For all rows together: dr = dy + norm2'(dn2), do = dr Wo, dWo += dr^T
 * o; without the latter two if the output product is in the attention op.
 */
#include "codelets/insert.h"
#include "codelets/mlp.h"
#include "codelets/norms.h"

#define POST_AGAIN_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(saved, SP_READ)      /* sp_shape_residual_saved */                                         \
    OPTIONAL(o, SP_READ)     /* (T,q) */                                                           \
    ONE(w, SP_READ)          /* block of the layer's second half */                                \
    ONE(g, SP_ADD)           /* += its gradient */                                                 \
    ONE(dy, SP_READ)         /* (T,h) */                                                           \
    ONE(dr, SP_WRITE)        /* = (T,h) */                                                         \
    OPTIONAL(d_o, SP_WRITE)  /* = (T,q) */                                                         \
    ONE(scratch, SP_SCRATCH) /* sp_shape_post_chunk */
SP_BUFFERS(post_again, POST_AGAIN_BUFFERS)

/* For the rows from t on: dr = dn2; adds to the gradients of the MLP's products. */
static void mlp_again(const struct sp_backend *k, const struct post_again_buffers *b,
                      const struct sp_task_args *a, int t)
{
    const struct sp_shape *sh = a->shape;
    unsigned overwrites = t == 0 ? a->overwrites : 0;
    int rows = sh->rows - t < sh->mlp_rows ? sh->rows - t : sh->mlp_rows;
    const struct sp_norm norm = sp_post_norm(sh, rows, b->w);
    const struct sp_post_saved s = sp_shape_residual_view(sh, b->saved);
    size_t part = (size_t)sh->mlp_rows, h = (size_t)sh->model.hidden, at = (size_t)t * h;
    size_t width = (size_t)sh->up_width, f = (size_t)sh->model.mlp;
    void *n2 = b->scratch, *u = sp_skip(sh, n2, part * h), *act = sp_skip(sh, u, part * width);
    void *du = sp_skip(sh, act, part * f), *dg = sp_skip(sh, du, part * width);
    void *dy = sp_skip(sh, b->dy, at);
    const struct sp_mlp mlp = {sh, rows, b->w, u};

    k->norm_apply(k, &norm, sp_skip(sh, s.r, at), s.stats + 2 * (size_t)t, n2);
    sp_mlp_up(k, &mlp, n2, act);
    sp_mlp_backward(k, &mlp, dy, dg, du, sp_skip(sh, b->dr, at));
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_UP, rows), overwrites, n2, du, b->g);
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_DOWN, rows), overwrites, act, dy, b->g);
}

static void post_again(const struct sp_backend *k, const struct post_again_buffers *b,
                       const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    const struct sp_norm norm = sp_post_norm(sh, sh->rows, b->w);
    const struct sp_linear out = sp_linear_of(sh, SP_TO_OUT, sh->rows, b->w);
    const struct sp_post_saved s = sp_shape_residual_view(sh, b->saved);
    size_t T = (size_t)sh->rows;
    float *g = b->g;

    /* dr holds dn2 until norm2's backward overwrites it */
    for (int t = 0; t < sh->rows; t += sh->mlp_rows)
        mlp_again(k, b, a, t);
    k->norm_bwd(k, &norm, s.r, s.stats,
                &(struct sp_norm_bwd){.dy = b->dr,
                                      .dres = b->dy,
                                      .dx = b->dr,
                                      .dgain = g + sh->gain,
                                      .dbias = sp_at(g, sh->bias)});
    sp_check_finite(a, k, "dr", b->dr, T * (size_t)sh->model.hidden);
    if (!b->o)
        return;
    k->linear_dx(k, &out, b->dr, b->d_o, false);
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_OUT, sh->rows), a->overwrites, b->o, b->dr, g);
    sp_check_finite(a, k, "do", b->d_o, T * (size_t)sh->q_width);
}

SP_CODELET(post_again);

/* Counts the products of both gradients, and the MLP's first product once more. */
static double flops_of(const struct sp_shape *sh, bool out)
{
    const struct sp_model *m = &sh->model;

    return sh->rows * ((out ? 2 * sp_product_flops(m, SP_ROLE_OUT) : 0) +
                       3 * sp_product_flops(m, SP_ROLE_UP) + 2 * sp_product_flops(m, SP_ROLE_DOWN));
}

void sp_post_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                          struct sp_tensor *dy, struct sp_tensor *dr, struct sp_tensor *d_o,
                          int64_t released)
{
    struct sp_task *task =
        sp_task_new(ctx, &post_again_cl, "post.again", sh, sizeof(struct sp_task_args));
    size_t scratch = sp_shape_post_chunk(sp_shape_scratch(sh));

    sp_task_overwrites(task, g, SP_MLP_MATRICES | (t->o ? SP_OUT_MATRIX : 0));
    SP_TASK_BUFFERS(task, post_again, .saved = t->saved, .o = t->o, .w = w, .g = g, .dy = dy,
                    .dr = dr, .d_o = d_o, .scratch = sp_scratch_handle(ctx, sh, scratch));
    ((struct sp_task_args *)task->args)->variant = t->o == NULL;
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, flops_of(sh, t->o != NULL));
}
