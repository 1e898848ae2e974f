/* Output projection, norm and MLP after attention: tasks equal the kernels, bit for bit. */
#include "engine/codelets.h"

struct post_ref {
    float *r, *stats, *u, *n2, *g, *y, *du, *dr, *d_o;
};

static struct post_ref post_ref(const struct sp_shape *sh)
{
    size_t nx = (size_t)T * (size_t)sh->model.hidden;

    return (struct post_ref){.r = floats(nx),
                             .stats = floats(2 * T),
                             .u = floats((size_t)T * (size_t)sh->up_width),
                             .n2 = floats(nx),
                             .g = floats((size_t)T * (size_t)sh->model.mlp),
                             .y = floats(nx),
                             .du = floats((size_t)T * (size_t)sh->up_width),
                             .dr = floats(nx),
                             .d_o = floats((size_t)T * (size_t)sh->q_width)};
}

static int rows_from(const struct sp_shape *sh, int t)
{
    return T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
}

static void post_forward(const struct sp_shape *sh, const float *x, const float *o, float *w,
                         struct post_ref *f)
{
    int h = sh->model.hidden, m = sh->model.mlp, up = sh->up_width;
    const struct sp_linear out = out_product(sh, w);
    const struct sp_norm norm = sp_post_norm(sh, T, w);

    sp_linear_add(&out, o, x, f->r);
    sp_norm(&norm, f->r, f->n2, f->stats);
    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = rows_from(sh, t);
        const struct sp_linear ups = up_product(sh, rows, w), downs = down_product(sh, rows, w);

        sp_linear(&ups, f->n2 + t * h, f->u + t * up);
        activate(sh, rows, f->u + t * up, f->g + t * m);
        sp_linear_add(&downs, f->g + t * m, f->r + t * h, f->y + t * h);
    }
}

static void post_backward(const struct sp_shape *sh, float *w, const float *dy, float *g,
                          struct post_ref *f)
{
    int h = sh->model.hidden, m = sh->model.mlp, up = sh->up_width;
    float *dg = floats((size_t)(T * m)), *dn = floats((size_t)(T * h));
    const struct sp_linear out = out_product(sh, w);
    const struct sp_norm norm = sp_post_norm(sh, T, w);

    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = rows_from(sh, t);
        const struct sp_linear ups = up_product(sh, rows, w), downs = down_product(sh, rows, w);

        sp_linear_dx(&downs, dy + t * h, dg, false);
        if (sh->rms)
            sp_gated_bwd(&(struct sp_gated){.act = SP_SILU, .T = rows, .f = m}, f->u + t * up, dg,
                         f->du + t * up);
        else
            sp_activation_bwd(SP_GELU_TANH, (size_t)(rows * m), f->u + t * up, dg, f->du + t * up);
        sp_linear_dx(&ups, f->du + t * up, dn + t * h, false);
    }
    sp_norm_bwd(
        &norm, f->r, f->stats,
        &(struct sp_norm_bwd){
            .dy = dn, .dres = dy, .dx = f->dr, .dgain = g + sh->gain, .dbias = sp_at(g, sh->bias)});
    sp_linear_dx(&out, f->dr, f->d_o, false);
}

static void post_weights(const struct sp_shape *sh, const float *o, const float *dy, float *g,
                         const struct post_ref *f)
{
    const struct sp_linear out = out_product(sh, g), up = up_product(sh, T, g);
    const struct sp_linear down = down_product(sh, T, g);

    sp_linear_dw(&out, o, f->dr, g + sh->out, sp_at(g, sh->out_bias));
    sp_linear_dw(&up, f->n2, f->du, g + sh->up, sp_at(g, sh->up_bias));
    sp_linear_dw(&down, f->g, dy, g + sh->down, sp_at(g, sh->down_bias));
}

/* n2 again from what was saved, and the gradients of the weights. */
static void post_weights_again(const struct sp_shape *sh, float *w, const float *o, const float *dy,
                               float *g, struct post_ref *f)
{
    const struct sp_norm norm = sp_post_norm(sh, T, w);

    sp_norm_apply(&norm, f->r, f->stats, f->n2);
    post_weights(sh, o, dy, g, f);
}

/* Norm2's gradient by way of a block like norm1's: what it is in g, but for rounding, and nothing else
 * of g. */
static void check_apart(const struct sp_shape *sh, const struct sp_post *post,
                        const struct tensor *w, const struct tensor *dy, const float *before,
                        const float *after, struct tensor *du, struct tensor *dr,
                        struct tensor *d_o)
{
    struct tensor norm = tensor(sp_block_elements(&sh->model, SP_BLOCK_NORM1));
    struct tensor g = tensor(sp_block_elements(&sh->model, SP_BLOCK_POST));
    size_t h = (size_t)sh->model.hidden;
    struct sp_task_context ctx = test_context();

    memset(norm.at, 0, norm.n * sizeof(float));
    memcpy(g.at, before, g.n * sizeof(float));
    sp_post_bwd_insert(&ctx, sh, post, w->handle, norm.handle, true, dy->handle, du->handle,
                       dr->handle, d_o->handle);
    sp_part_add_insert(&ctx, norm.handle, g.handle, sh->gain);
    starpu_task_wait_for_all();
    for (size_t i = 0; i < g.n; i++) {
        bool norm2 = i - sh->gain < h || (sp_at(g.at, sh->bias) && i - sh->bias < h);

        if (norm2 ? fabsf(g.at[i] - after[i]) > 1e-5f * (1 + fabsf(after[i]))
                  : memcmp(&g.at[i], &before[i], sizeof(float)) != 0)
            fail_msg("element %zu of the block is %g, was %g, and %g in place", i, g.at[i],
                     before[i], after[i]);
    }
}

static void check_post(const struct sp_shape *sh)
{
    size_t nx = (size_t)T * (size_t)sh->model.hidden, no = (size_t)T * (size_t)sh->q_width;
    size_t nu = (size_t)T * (size_t)sh->up_width, nm = (size_t)T * (size_t)sh->model.mlp;
    struct tensor x = random_tensor(nx, 11), o = random_tensor(no, 12);
    struct tensor w = block(sh, SP_BLOCK_POST, 13), g = block(sh, SP_BLOCK_POST, 14);
    struct tensor dy = random_tensor(nx, 15);
    struct sp_task_context ctx = test_context();

    for (size_t k = 0; k < 6; k++) {
        bool has = variants[k % 3].saved, keep_outputs = variants[k % 3].keep_outputs,
             has_y = k < 3;
        struct tensor saved = tensor(sp_shape_post_saved(sh, keep_outputs)), y = tensor(nx);
        struct tensor du = tensor(nu), dr = tensor(nx), d_o = tensor(no);
        struct sp_post post = {.x = x.handle,
                               .o = o.handle,
                               .saved = has ? saved.handle : NULL,
                               .keep_outputs = keep_outputs};
        struct sp_post_saved view = sp_shape_post_view(sh, keep_outputs, saved.at);
        struct post_ref f = post_ref(sh);
        float *rg = copy(&g), *before;
        const struct sp_norm norm = sp_post_norm(sh, T, w.at);

        if (has && keep_outputs)
            make_stale(sh, SP_BLOCK_POST, &g, rg);
        before = copy(&g);
        post_forward(sh, x.at, o.at, w.at, &f);
        sp_post_fwd_insert(&ctx, sh, &post, w.handle, has_y ? y.handle : NULL, 0);
        starpu_task_wait_for_all();
        if (has_y)
            assert_same_bits(y.at, f.y, nx, "y");
        if (has) {
            assert_same_bits(view.r, f.r, nx, "r");
            assert_same_bits(view.stats, f.stats, 2 * T, "stats2");
            assert_same_bits(view.u, f.u, nu, "u");
        }
        if (keep_outputs) {
            assert_same_bits(view.n2, f.n2, nx, "n2");
            assert_same_bits(view.g, f.g, nm, "g");
        }
        if (has) {
            sp_post_bwd_insert(&ctx, sh, &post, w.handle, g.handle, false, dy.handle, du.handle,
                               dr.handle, d_o.handle);
            sp_post_wgrad_insert(&ctx, sh, &post, w.handle, g.handle, dy.handle, du.handle,
                                 dr.handle, 0);
            starpu_task_wait_for_all();
            post_backward(sh, w.at, dy.at, rg, &f);
            if (!keep_outputs)
                sp_norm_apply(&norm, f.r, f.stats, f.n2);
            check_apart(sh, &post, &w, &dy, before, rg, &du, &dr, &d_o);
            post_weights(sh, o.at, dy.at, rg, &f);
            assert_same_bits(du.at, f.du, nu, "du");
            assert_same_bits(dr.at, f.dr, nx, "dr");
            assert_same_bits(d_o.at, f.d_o, no, "do");
            assert_same_bits(g.at, rg, g.n, "post gradient");
        }
    }
}

/* Sums over chunks of rows are other sums. */
static void assert_near(const float *a, const float *b, size_t n, const char *what)
{
    double norm = 0, apart = 0;

    for (size_t i = 0; i < n; i++) {
        norm += (double)b[i] * b[i];
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    if (!(apart <= 1e-12 * norm) || norm == 0)
        fail_msg("%s is %g of its norm apart", what, sqrt(apart / norm));
}

/* From r alone, so many rows of the MLP at a time: the gradients of a layer that kept all of it. */
static void check_again(const struct sp_shape *whole)
{
    static const int parts[] = {1, 3, T - 1, T};
    size_t nx = (size_t)T * (size_t)whole->model.hidden, no = (size_t)T * (size_t)whole->q_width;
    struct tensor x = random_tensor(nx, 11), o = random_tensor(no, 12), dy = random_tensor(nx, 15);
    struct tensor w = block(whole, SP_BLOCK_POST, 13);
    struct sp_task_context ctx = test_context();
    struct post_ref f = post_ref(whole);
    struct sp_shape sh = *whole;

    post_forward(whole, x.at, o.at, w.at, &f);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        struct tensor saved = tensor(sp_shape_residual_saved(whole)), y = tensor(nx);
        struct tensor dr = tensor(nx), d_o = tensor(no), g = block(whole, SP_BLOCK_POST, 14);
        float *rg = copy(&g);
        struct sp_post post = {
            .x = x.handle, .o = o.handle, .saved = saved.handle, .residual = true};

        if (k % 2)
            make_stale(whole, SP_BLOCK_POST, &g, rg);
        sh.mlp_rows = parts[k];
        sp_post_fwd_insert(&ctx, &sh, &post, w.handle, k % 2 ? y.handle : NULL, 0);
        sp_post_again_insert(&ctx, &sh, &post, w.handle, g.handle, dy.handle, dr.handle, d_o.handle,
                             0);
        starpu_task_wait_for_all();
        post_backward(whole, w.at, dy.at, rg, &f);
        post_weights_again(whole, w.at, o.at, dy.at, rg, &f);
        assert_same_bits(sp_shape_residual_view(whole, saved.at).r, f.r, nx, "r");
        if (k % 2)
            assert_near(y.at, f.y, nx, "y");
        assert_near(dr.at, f.dr, nx, "dr");
        assert_near(d_o.at, f.d_o, no, "do");
        assert_near(g.at, rg, g.n, "gradient of post");
    }
}

/* The output product apart (out.c), the MLP from its result: outputs and gradients of both in one. */
static void check_without_out(const struct sp_shape *sh)
{
    size_t nx = (size_t)T * (size_t)sh->model.hidden, no = (size_t)T * (size_t)sh->q_width;
    size_t nu = (size_t)T * (size_t)sh->up_width, n_out = sh->gain;
    struct tensor x = random_tensor(nx, 11), o = random_tensor(no, 12), dy = random_tensor(nx, 15);
    struct tensor w = block(sh, SP_BLOCK_POST, 13), w_out = tensor(n_out);
    struct sp_task_context ctx = test_context();
    struct post_ref f = post_ref(sh);

    post_forward(sh, x.at, o.at, w.at, &f);
    sp_copy_insert(&ctx, w.handle, w_out.handle);
    for (int k = 0; k < 4; k++) {
        bool keep_outputs = k == 1, residual = k == 3;
        struct tensor saved =
            tensor(residual ? sp_shape_residual_saved(sh) : sp_shape_post_saved(sh, keep_outputs));
        struct tensor r = tensor(nx), y = tensor(nx), du = tensor(nu), dr = tensor(nx),
                      d_o = tensor(no);
        struct tensor g = block(sh, SP_BLOCK_POST, 14), g_out = tensor(n_out);
        struct sp_post post = {.x = r.handle,
                               .saved = k == 2 ? NULL : saved.handle,
                               .keep_outputs = keep_outputs,
                               .residual = residual};
        float *rg = copy(&g), *before;

        if (k == 1)
            make_stale(sh, SP_BLOCK_POST, &g, rg);
        memcpy(g_out.at, g.at, n_out * sizeof(float));
        g_out.handle->stale = g.handle->stale & SP_OUT_MATRIX;
        memcpy(g.at, rg, n_out * sizeof(float));
        g.handle->stale &= SP_MLP_MATRICES;
        before = copy(&g);
        sp_out_fwd_insert(&ctx, sh, o.handle, w_out.handle, true, x.handle, r.handle);
        sp_post_fwd_insert(&ctx, sh, &post, w.handle, y.handle, 0);
        if (post.saved && residual) {
            sp_post_again_insert(&ctx, sh, &post, w.handle, g.handle, dy.handle, dr.handle, NULL,
                                 0);
        } else if (post.saved) {
            sp_post_bwd_insert(&ctx, sh, &post, w.handle, g.handle, false, dy.handle, du.handle,
                               dr.handle, NULL);
            sp_post_wgrad_insert(&ctx, sh, &post, w.handle, g.handle, dy.handle, du.handle,
                                 dr.handle, 0);
        }
        starpu_task_wait_for_all();
        assert_same_bits(r.at, f.r, nx, "r");
        assert_same_bits(y.at, f.y, nx, "y");
        if (post.saved) {
            sp_out_bwd_insert(&ctx, sh, dr.handle, w_out.handle, d_o.handle);
            sp_out_wgrad_insert(&ctx, sh, o.handle, dr.handle, g_out.handle);
            starpu_task_wait_for_all();
            post_backward(sh, w.at, dy.at, rg, &f);
            post_weights_again(sh, w.at, o.at, dy.at, rg, &f);
            assert_near(dr.at, f.dr, nx, "dr");
            assert_near(d_o.at, f.d_o, no, "do");
            assert_near(g.at + n_out, rg + n_out, g.n - n_out, "gradient of the MLP");
            assert_same_bits(g.at, before, n_out, "what is not the MLP's");
            assert_near(g_out.at, rg, n_out, "gradient of the output product");
        }
    }
}

TEST(without_out)
{
    for_each_shape(check_without_out);
}

TEST(again)
{
    for_each_shape(check_again);
}

TEST(post)
{
    for_each_shape(check_post);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
