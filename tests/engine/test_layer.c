/*
 * The backward of a whole layer, as the codelets run it, against finite differences of its forward
 * in the kernels: L = sum of y dy, gradient along random directions of one tensor at a time.
 *
 * Floats: a forward rounds L to about 1e-7 of the sum of its terms' sizes, and a step of 1/64 leaves
 * a third-order term of about 1e-5. So the tolerance is 5e-4 of the length of the gradient.
 */
#include "engine/codelets.h"

static const double STEP = 1.0 / 64, TOLERANCE = 5e-4;

struct layer {
    struct sp_shape sh;
    struct tensor x, w_norm, w_qkv, w_post, dy;
    struct tensor g_norm, g_qkv, g_post, dx;
};

static void attention_of(const struct sp_shape *sh, const float *q, const float *kv, float *o,
                         float *lse)
{
    int len = SEQ;
    const float *slices[] = {kv};
    struct sp_attention at = {.batch = BATCH,
                              .heads = sh->model.heads,
                              .kv_heads = sh->model.kv_heads,
                              .head_dim = sh->model.head_dim,
                              .scale = 1.0f / sqrtf((float)sh->model.head_dim),
                              .q_len = SEQ,
                              .n_kv = 1,
                              .kv_len = &len};

    sp_attention(&at, q, slices, o, lse);
}

/* Every head of q and of the keys, in place. */
static void normalise_heads(const struct sp_shape *sh, const float *w, float *q, float *kv)
{
    const struct sp_norm of_q = head_norm(sh, T * sh->model.heads, w + sh->q_gain);
    const struct sp_norm of_k = head_norm(sh, sh->model.kv_heads, w + sh->k_gain);

    sp_norm(&of_q, q, q, NULL);
    for (int t = 0; t < T; t++)
        sp_norm(&of_k, kv + t * sh->kv_width, kv + t * sh->kv_width, NULL);
}

/* L at the present values of x and the weights. */
static double loss(const struct layer *l)
{
    const struct sp_shape *sh = &l->sh;
    float *w = l->w_qkv.at, *wp = l->w_post.at;
    float n[T * 64], q[T * 64], kv[T * 64], o[T * 64], lse[T * 8], r[T * 64], u[T * 64], g[T * 64];
    float y[T * 64];
    const struct sp_norm norm1 = sp_block_norm(sh, T, l->w_norm.at),
                         norm2 = sp_post_norm(sh, T, wp);
    const struct sp_linear to_q = qkv_product(sh, w, 0, sh->q_width);
    const struct sp_linear to_kv = qkv_product(sh, w, sh->q_width, sh->kv_width);
    const struct sp_linear out = out_product(sh, wp), up = up_product(sh, T, wp);
    const struct sp_linear down = down_product(sh, T, wp);
    double sum = 0;

    sp_norm(&norm1, l->x.at, n, NULL);
    sp_linear(&to_q, n, q);
    sp_linear(&to_kv, n, kv);
    if (sh->model.qk_norm)
        normalise_heads(sh, w, q, kv);
    rotate(sh, false, q, kv);
    attention_of(sh, q, kv, o, lse);
    sp_linear_add(&out, o, l->x.at, r);
    sp_norm(&norm2, r, n, NULL);
    sp_linear(&up, n, u);
    activate(sh, T, u, g);
    sp_linear_add(&down, g, r, y);
    for (int i = 0; i < T * sh->model.hidden; i++)
        sum += (double)y[i] * (double)l->dy.at[i];
    return sum;
}

/* Forward and backward by the codelets. */
static void run_codelets(struct layer *l, bool keep_outputs)
{
    const struct sp_shape *sh = &l->sh;
    size_t nx = l->x.n, nq = (size_t)(T * sh->q_width), nkv = (size_t)(T * sh->kv_width);
    struct tensor pre_saved = tensor(sp_shape_pre_saved(sh, keep_outputs)), q = tensor(nq);
    struct tensor post_saved = tensor(sp_shape_post_saved(sh, keep_outputs)), kv = tensor(nkv);
    struct tensor o = tensor(nq), lse = tensor((size_t)(T * sh->model.heads)), y = tensor(nx);
    struct tensor du = tensor((size_t)(T * sh->up_width)), dr = tensor(nx), d_o = tensor(nq);
    struct tensor dq = tensor(nq), dkv = tensor(nkv);
    struct sp_task_context ctx = test_context();
    struct sp_pre pre = {l->x.handle, pre_saved.handle, q.handle, kv.handle, keep_outputs};
    struct sp_post post = {
        .x = l->x.handle, .o = o.handle, .saved = post_saved.handle, .keep_outputs = keep_outputs};
    struct sp_attn_keys keys = {.len = sh->seq, .kv = kv.handle, .dkv = dkv.handle};
    struct sp_attn at = {.q_len = SEQ,
                         .begins = true,
                         .ends = true,
                         .n_keys = 1,
                         .keys = &keys,
                         .q = q.handle,
                         .o = o.handle,
                         .lse = lse.handle};

    memset(l->g_norm.at, 0, l->g_norm.n * sizeof(float));
    memset(l->g_qkv.at, 0, l->g_qkv.n * sizeof(float));
    memset(l->g_post.at, 0, l->g_post.n * sizeof(float));
    sp_pre_fwd_insert(&ctx, sh, &pre, l->w_norm.handle, l->w_qkv.handle, 0);
    sp_attn_fwd_insert(&ctx, sh, &at, 0);
    sp_post_fwd_insert(&ctx, sh, &post, l->w_post.handle, y.handle, 0);
    sp_post_bwd_insert(&ctx, sh, &post, l->w_post.handle, l->g_post.handle, false, l->dy.handle,
                       du.handle, dr.handle, d_o.handle);
    sp_attn_bwd_insert(&ctx, sh, &at, true, d_o.handle, dq.handle, 0);
    sp_pre_bwd_insert(&ctx, sh, &pre, l->w_norm.handle, l->w_qkv.handle, l->g_norm.handle,
                      l->g_qkv.handle, false, dq.handle, dkv.handle, dr.handle, l->dx.handle);
    sp_post_wgrad_insert(&ctx, sh, &post, l->w_post.handle, l->g_post.handle, l->dy.handle,
                         du.handle, dr.handle, 0);
    sp_pre_wgrad_insert(&ctx, sh, &pre, l->w_norm.handle, dq.handle, dkv.handle, l->g_qkv.handle,
                        0);
    starpu_task_wait_for_all();
}

static double worst;

/* The gradient g of elements first .. first+n-1 of a tensor, along four directions. */
static void check_direction(const struct layer *l, struct tensor *t, const float *g, size_t first,
                            size_t n, const char *what)
{
    float *at = t->at + first, *kept = floats(n), *dir = floats(n);
    double length = 0, size = 0;

    memcpy(kept, at, n * sizeof *kept);
    for (size_t i = 0; i < n; i++)
        length += (double)g[first + i] * (double)g[first + i];
    assert_true(length > 0);
    for (uint64_t k = 0; k < 4; k++) {
        double up, down, expected = 0, error;

        fill(dir, n, 900 + k, 1);
        size = 0;
        for (size_t i = 0; i < n; i++)
            size += (double)dir[i] * (double)dir[i];
        for (size_t i = 0; i < n; i++) {
            /* The first direction is the gradient's own: it cannot hide in a right angle. */
            dir[i] = k == 0 ? (float)((double)g[first + i] / sqrt(length))
                            : (float)((double)dir[i] / sqrt(size));
            expected += (double)dir[i] * (double)g[first + i];
        }
        for (size_t i = 0; i < n; i++)
            at[i] = kept[i] + (float)STEP * dir[i];
        up = loss(l);
        for (size_t i = 0; i < n; i++)
            at[i] = kept[i] - (float)STEP * dir[i];
        down = loss(l);
        memcpy(at, kept, n * sizeof *kept);
        error = fabs((up - down) / (2 * STEP) - expected) / sqrt(length);
        worst = error > worst ? error : worst;
        if (!(error < TOLERANCE))
            fail_msg("%s, %s, direction %d: %.6g by differences, %.6g by the backward", what,
                     l->sh.model.name, (int)k, (up - down) / (2 * STEP), expected);
    }
}

static void check_role(struct layer *l, struct tensor *w, const struct tensor *g, size_t offset,
                       int n, const char *what)
{
    if (offset != (size_t)-1)
        check_direction(l, w, g->at, offset, (size_t)n, what);
}

static void check_layer(enum small which, bool keep_outputs, int mlp_rows)
{
    struct sp_model m = small_model(which);
    size_t nx = (size_t)(T * m.hidden);
    struct layer l;
    const struct sp_shape *sh = &l.sh;
    int h = m.hidden;

    sp_shape_init(&l.sh, &m, BATCH, SEQ, 1);
    sp_shape_cut(&l.sh, mlp_rows, 0);
    l.x = random_tensor(nx, 1), l.dy = random_tensor(nx, 2), l.dx = tensor(nx);
    l.w_norm = random_tensor(sp_block_elements(&m, SP_BLOCK_NORM1), 3);
    l.w_qkv = random_tensor(sp_block_elements(&m, SP_BLOCK_QKV), 4);
    l.w_post = random_tensor(sp_block_elements(&m, SP_BLOCK_POST), 5);
    l.g_norm = tensor(l.w_norm.n), l.g_qkv = tensor(l.w_qkv.n), l.g_post = tensor(l.w_post.n);
    fill(l.w_qkv.at, l.w_qkv.n, 6, 0.3f);
    fill(l.w_post.at, l.w_post.n, 7, 0.3f);
    for (int i = 0; i < h; i++)
        l.w_post.at[sh->gain + (size_t)i] += 1;

    for (int i = 0; i < m.head_dim && m.qk_norm; i++)
        l.w_qkv.at[sh->q_gain + (size_t)i] += 1, l.w_qkv.at[sh->k_gain + (size_t)i] += 1;

    run_codelets(&l, keep_outputs);
    check_direction(&l, &l.x, l.dx.at, 0, nx, "x");
    check_role(&l, &l.w_norm, &l.g_norm, 0, h, "norm1 gain");
    check_role(&l, &l.w_norm, &l.g_norm, sh->norm_bias, h, "norm1 bias");
    check_role(&l, &l.w_qkv, &l.g_qkv, sh->qkv, (sh->q_width + sh->kv_width) * h, "qkv");
    check_role(&l, &l.w_qkv, &l.g_qkv, sh->qkv_bias, sh->q_width + sh->kv_width, "qkv bias");
    check_role(&l, &l.w_qkv, &l.g_qkv, sh->q_gain, m.head_dim, "gain of queries");
    check_role(&l, &l.w_qkv, &l.g_qkv, sh->k_gain, m.head_dim, "gain of keys");
    check_role(&l, &l.w_post, &l.g_post, sh->out, sh->q_width * h, "out");
    check_role(&l, &l.w_post, &l.g_post, sh->out_bias, h, "out bias");
    check_role(&l, &l.w_post, &l.g_post, sh->gain, h, "norm2 gain");
    check_role(&l, &l.w_post, &l.g_post, sh->bias, h, "norm2 bias");
    check_role(&l, &l.w_post, &l.g_post, sh->up, sh->up_width * h, "up");
    check_role(&l, &l.w_post, &l.g_post, sh->up_bias, sh->up_width, "up bias");
    check_role(&l, &l.w_post, &l.g_post, sh->down, m.mlp * h, "down");
    check_role(&l, &l.w_post, &l.g_post, sh->down_bias, h, "down bias");
}

TEST(gradients)
{
    for (int which = 0; which < SMALL_MODELS; which++)
        for (int keep_outputs = 0; keep_outputs < 2; keep_outputs++) {
            check_layer((enum small)which, keep_outputs, 0);
            check_layer((enum small)which, keep_outputs, 5);
        }
    printf("[          ] largest deviation from finite differences: %.1e of the gradient\n", worst);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
