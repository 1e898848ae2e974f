/* Every codelet's task equals the kernels called directly, bit for bit, in all its variants. */
#include "engine/tensors.h"
#include "kernels/kernels.h"

enum { BATCH = 2, SEQ = 7, T = BATCH * SEQ };

/* What is kept from a forward. */
static const struct variant {
    bool saved, keep_outputs;
} variants[] = {{false, false}, {true, false}, {true, true}};

static struct sp_shape shape_of(bool llama, int mlp_rows, int head_rows)
{
    struct sp_model m = small_model(llama);
    struct sp_shape sh;

    sp_shape_init(&sh, &m, BATCH, SEQ, 3, mlp_rows, head_rows);
    return sh;
}

static struct tensor block(const struct sp_shape *sh, enum sp_block_kind kind, uint64_t seed)
{
    return random_tensor(sp_block_elements(&sh->model, kind), seed);
}

static float *copy(const struct tensor *t)
{
    float *x = malloc(t->n * sizeof *x);

    assert_non_null(x);
    memcpy(x, t->at, t->n * sizeof *x);
    return x;
}

static float *floats(size_t n)
{
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

static void for_each_shape(void (*fn)(const struct sp_shape *sh))
{
    static const int cuts[] = {0, 4, 5, 14, 1};

    for (int llama = 0; llama < 2; llama++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            struct sp_shape sh = shape_of(llama, cuts[i], cuts[i]);

            fn(&sh);
        }
}

/* ---- pre -------------------------------------------------------------------------------- */

static void rotate(const struct sp_shape *sh, bool inverse, float *q, float *kv)
{
    const struct sp_model *m = &sh->model;

    if (!sh->rms)
        return;
    sp_rope(BATCH, SEQ, m->heads, m->head_dim, sh->q_width, 0, m->rope_theta, inverse, q);
    sp_rope(BATCH, SEQ, m->kv_heads, m->head_dim, sh->kv_width, 0, m->rope_theta, inverse, kv);
}

static void check_pre(const struct sp_shape *sh)
{
    int h = sh->model.hidden, qw = sh->q_width, kw = sh->kv_width;
    size_t nx = (size_t)T * (size_t)h, nq = (size_t)T * (size_t)qw, nkv = (size_t)T * (size_t)kw;
    struct tensor x = random_tensor(nx, 1), wn = block(sh, SP_BLOCK_NORM1, 2);
    struct tensor w = block(sh, SP_BLOCK_QKV, 3), gn = block(sh, SP_BLOCK_NORM1, 4);
    struct tensor g = block(sh, SP_BLOCK_QKV, 5), dr = random_tensor(nx, 6);
    float *n1 = floats(nx), *stats = floats(2 * T), *q = floats(nq), *kv = floats(nkv);
    float *wkv = w.at + sh->qkv + (size_t)qw * (size_t)h, *bias = sp_at(w.at, sh->qkv_bias);
    struct sp_task_context ctx = test_context();

    sp_norm(sh->rms, T, h, sh->model.norm_eps, x.at, wn.at, sp_at(wn.at, sh->norm_bias), n1, stats);
    sp_linear(T, h, qw, n1, w.at + sh->qkv, bias, q, qw);
    sp_linear(T, h, kw, n1, wkv, bias ? bias + qw : NULL, kv, kw);
    rotate(sh, false, q, kv);

    for (size_t k = 0; k < 3; k++) {
        bool has = variants[k].saved, keep_outputs = variants[k].keep_outputs;
        struct tensor tq = tensor(nq), tkv = tensor(nkv), dq = random_tensor(nq, 7);
        struct tensor saved = tensor(sp_shape_pre_saved(sh, keep_outputs)), dx = tensor(nx);
        struct tensor dkv = random_tensor(nkv, 8);
        struct sp_pre pre = {.x = x.handle,
                             .saved = has ? saved.handle : NULL,
                             .q = tq.handle,
                             .kv = tkv.handle,
                             .keep_outputs = keep_outputs};
        struct sp_pre_saved view = sp_shape_pre_view(sh, keep_outputs, saved.at);
        float *dn = floats(nx), *rn, *rg, *rdq, *rdkv, *gbias;

        sp_pre_fwd_insert(&ctx, sh, &pre, wn.handle, w.handle, 0);
        starpu_task_wait_for_all();
        assert_same_bits(tq.at, q, nq, "q");
        assert_same_bits(tkv.at, kv, nkv, "kv");
        if (has)
            assert_same_bits(view.stats, stats, 2 * T, "stats1");
        if (keep_outputs)
            assert_same_bits(view.n1, n1, nx, "n1");
        if (!has)
            goto next;

        rdq = copy(&dq), rdkv = copy(&dkv), rn = copy(&gn), rg = copy(&g);
        sp_pre_bwd_insert(&ctx, sh, &pre, wn.handle, w.handle, gn.handle, dq.handle, dkv.handle,
                          dr.handle, dx.handle);
        sp_pre_wgrad_insert(&ctx, sh, &pre, wn.handle, dq.handle, dkv.handle, g.handle, 0);
        starpu_task_wait_for_all();
        rotate(sh, true, rdq, rdkv);
        sp_linear_dx(T, h, qw, rdq, qw, w.at + sh->qkv, dn, false);
        sp_linear_dx(T, h, kw, rdkv, kw, wkv, dn, true);
        sp_norm_bwd(sh->rms, T, h, x.at, stats, wn.at, dn, dr.at, dn, rn, sp_at(rn, sh->norm_bias));
        gbias = sp_at(rg, sh->qkv_bias);
        if (!keep_outputs)
            sp_norm_apply(T, h, x.at, stats, wn.at, sp_at(wn.at, sh->norm_bias), n1);
        sp_linear_dw(T, h, qw, n1, rdq, qw, rg + sh->qkv, gbias);
        sp_linear_dw(T, h, kw, n1, rdkv, kw, rg + sh->qkv + (size_t)qw * (size_t)h,
                     gbias ? gbias + qw : NULL);
        assert_same_bits(dx.at, dn, nx, "dx");
        assert_same_bits(dq.at, rdq, nq, "dq");
        assert_same_bits(dkv.at, rdkv, nkv, "dkv");
        assert_same_bits(gn.at, rn, gn.n, "norm1 gradient");
        assert_same_bits(g.at, rg, g.n, "qkv gradient");
        free(rdq), free(rdkv), free(rn), free(rg);
    next:
        drop_tensor(&tq), drop_tensor(&tkv), drop_tensor(&dq), drop_tensor(&dkv);
        drop_tensor(&saved), drop_tensor(&dx);
        free(dn);
    }
    drop_tensor(&x), drop_tensor(&wn), drop_tensor(&w), drop_tensor(&gn), drop_tensor(&g);
    drop_tensor(&dr);
    free(n1), free(stats), free(q), free(kv);
}

static void test_pre(void **state)
{
    (void)state;
    for_each_shape(check_pre);
}

/* The halves of pre, tasks of their own, give the bits of pre: gradients too, added up or fresh. */
static void check_halves(const struct sp_shape *sh)
{
    size_t nx = (size_t)T * (size_t)sh->model.hidden;
    size_t nq = (size_t)T * (size_t)sh->q_width, nkv = (size_t)T * (size_t)sh->kv_width;
    struct tensor x = random_tensor(nx, 1), wn = block(sh, SP_BLOCK_NORM1, 2);
    struct tensor w = block(sh, SP_BLOCK_QKV, 3), dr = random_tensor(nx, 6);
    struct tensor whole = tensor(sp_shape_pre_saved(sh, true));
    struct tensor q = tensor(nq), kv = tensor(nkv), q2 = tensor(nq), kv2 = tensor(nkv);
    struct sp_pre pre = {
        .x = x.handle, .saved = whole.handle, .q = q.handle, .kv = kv.handle, .keep_outputs = true};
    struct sp_pre_saved all = sp_shape_pre_view(sh, true, whole.at);
    struct sp_task_context ctx = test_context();

    sp_pre_fwd_insert(&ctx, sh, &pre, wn.handle, w.handle, 0);
    starpu_task_wait_for_all();
    for (int k = 0; k < 4; k++) {
        bool has = k > 0, keep_outputs = k == 3, apart = k < 3, fresh = k == 1;
        struct tensor n1 = tensor(nx), saved = tensor(sp_shape_pre_saved(sh, keep_outputs));
        struct tensor dq = random_tensor(nq, 7), dkv = random_tensor(nkv, 8);
        struct tensor dq2 = random_tensor(nq, 7), dkv2 = random_tensor(nkv, 8);
        struct tensor gn = block(sh, SP_BLOCK_NORM1, 4), gn2 = block(sh, SP_BLOCK_NORM1, 4);
        struct tensor g = block(sh, SP_BLOCK_QKV, 5), g2 = block(sh, SP_BLOCK_QKV, 5);
        struct tensor dx = tensor(nx), dx2 = tensor(nx), dn1 = tensor(nx);
        struct sp_pre half = {
            .x = x.handle, .saved = has ? saved.handle : NULL, .keep_outputs = keep_outputs};
        struct sp_pre_saved view = sp_shape_pre_view(sh, keep_outputs, saved.at);

        sp_norm_fwd_insert(&ctx, sh, &half, apart ? n1.handle : NULL, wn.handle, 0);
        starpu_task_wait_for_all();
        if (has)
            assert_same_bits(view.stats, all.stats, 2 * T, "stats1");
        if (keep_outputs)
            assert_same_bits(view.n1, all.n1, nx, "n1 saved");
        if (!apart)
            goto next;
        assert_same_bits(n1.at, all.n1, nx, "n1");
        sp_qkv_fwd_insert(&ctx, sh, n1.handle, w.handle, q2.handle, kv2.handle, 0);
        starpu_task_wait_for_all();
        assert_same_bits(q2.at, q.at, nq, "q");
        assert_same_bits(kv2.at, kv.at, nkv, "kv");
        if (!has)
            goto next;

        if (fresh)
            memset(g.at, 0, g.n * sizeof *g.at);
        sp_pre_bwd_insert(&ctx, sh, &pre, wn.handle, w.handle, gn.handle, dq.handle, dkv.handle,
                          dr.handle, dx.handle);
        sp_pre_wgrad_insert(&ctx, sh, &pre, wn.handle, dq.handle, dkv.handle, g.handle, 0);
        sp_qkv_bwd_insert(&ctx, sh, w.handle, dq2.handle, dkv2.handle, dn1.handle);
        sp_qkv_wgrad_insert(&ctx, sh, n1.handle, dq2.handle, dkv2.handle, g2.handle, fresh, 0);
        sp_norm_bwd_insert(&ctx, sh, &half, wn.handle, gn2.handle, dn1.handle, dr.handle,
                           dx2.handle, 0);
        starpu_task_wait_for_all();
        assert_same_bits(dx2.at, dx.at, nx, "dx");
        assert_same_bits(gn2.at, gn.at, gn.n, "norm1 gradient");
        assert_same_bits(g2.at, g.at, g.n, "qkv gradient");
    next:
        drop_tensor(&n1), drop_tensor(&saved), drop_tensor(&dq), drop_tensor(&dkv);
        drop_tensor(&dq2), drop_tensor(&dkv2), drop_tensor(&gn), drop_tensor(&gn2);
        drop_tensor(&g), drop_tensor(&g2), drop_tensor(&dx), drop_tensor(&dx2), drop_tensor(&dn1);
    }
    drop_tensor(&x), drop_tensor(&wn), drop_tensor(&w), drop_tensor(&dr), drop_tensor(&whole);
    drop_tensor(&q), drop_tensor(&kv), drop_tensor(&q2), drop_tensor(&kv2);
}

static void test_halves(void **state)
{
    (void)state;
    for_each_shape(check_halves);
}

/* ---- post ------------------------------------------------------------------------------- */

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

static void free_post_ref(struct post_ref *f)
{
    free(f->r), free(f->stats), free(f->u), free(f->n2), free(f->g), free(f->y);
    free(f->du), free(f->dr), free(f->d_o);
}

static void post_forward(const struct sp_shape *sh, const float *x, const float *o, float *w,
                         struct post_ref *f)
{
    int h = sh->model.hidden, m = sh->model.mlp, up = sh->up_width;

    sp_linear_add(T, sh->q_width, h, o, w + sh->out, sp_at(w, sh->out_bias), x, f->r);
    sp_norm(sh->rms, T, h, sh->model.norm_eps, f->r, w + sh->gain, sp_at(w, sh->bias), f->n2,
            f->stats);
    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;

        sp_linear(rows, h, up, f->n2 + t * h, w + sh->up, sp_at(w, sh->up_bias), f->u + t * up, up);
        if (sh->rms)
            sp_swiglu(rows, m, f->u + t * up, f->g + t * m);
        else
            sp_gelu((size_t)(rows * m), f->u + t * up, f->g + t * m);
        sp_linear_add(rows, m, h, f->g + t * m, w + sh->down, sp_at(w, sh->down_bias), f->r + t * h,
                      f->y + t * h);
    }
}

static void post_backward(const struct sp_shape *sh, float *w, const float *dy, float *g,
                          struct post_ref *f)
{
    int h = sh->model.hidden, m = sh->model.mlp, up = sh->up_width;
    float *dg = floats((size_t)(T * m)), *dn = floats((size_t)(T * h));

    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;

        sp_linear_dx(rows, m, h, dy + t * h, h, w + sh->down, dg, false);
        if (sh->rms)
            sp_swiglu_bwd(rows, m, f->u + t * up, dg, f->du + t * up);
        else
            sp_gelu_bwd((size_t)(rows * m), f->u + t * up, dg, f->du + t * up);
        sp_linear_dx(rows, h, up, f->du + t * up, up, w + sh->up, dn + t * h, false);
    }
    sp_norm_bwd(sh->rms, T, h, f->r, f->stats, w + sh->gain, dn, dy, f->dr, g + sh->gain,
                sp_at(g, sh->bias));
    sp_linear_dx(T, sh->q_width, h, f->dr, h, w + sh->out, f->d_o, false);
    free(dg), free(dn);
}

static void post_weights(const struct sp_shape *sh, const float *o, const float *dy, float *g,
                         const struct post_ref *f)
{
    int h = sh->model.hidden, up = sh->up_width;

    sp_linear_dw(T, sh->q_width, h, o, f->dr, h, g + sh->out, sp_at(g, sh->out_bias));
    sp_linear_dw(T, h, up, f->n2, f->du, up, g + sh->up, sp_at(g, sh->up_bias));
    sp_linear_dw(T, sh->model.mlp, h, f->g, dy, h, g + sh->down, sp_at(g, sh->down_bias));
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
    sp_norm2_add_insert(&ctx, sh, norm.handle, g.handle);
    starpu_task_wait_for_all();
    for (size_t i = 0; i < g.n; i++) {
        bool norm2 = i - sh->gain < h || (sp_at(g.at, sh->bias) && i - sh->bias < h);

        if (norm2 ? fabsf(g.at[i] - after[i]) > 1e-5f * (1 + fabsf(after[i]))
                  : memcmp(&g.at[i], &before[i], sizeof(float)) != 0)
            fail_msg("element %zu of the block is %g, was %g, and %g in place", i, g.at[i],
                     before[i], after[i]);
    }
    drop_tensor(&norm), drop_tensor(&g);
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
        float *rg = copy(&g), *before = copy(&g);

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
                sp_norm_apply(T, sh->model.hidden, f.r, f.stats, w.at + sh->gain,
                              sp_at(w.at, sh->bias), f.n2);
            check_apart(sh, &post, &w, &dy, before, rg, &du, &dr, &d_o);
            post_weights(sh, o.at, dy.at, rg, &f);
            assert_same_bits(du.at, f.du, nu, "du");
            assert_same_bits(dr.at, f.dr, nx, "dr");
            assert_same_bits(d_o.at, f.d_o, no, "do");
            assert_same_bits(g.at, rg, g.n, "post gradient");
        }
        drop_tensor(&saved), drop_tensor(&y), drop_tensor(&du), drop_tensor(&dr);
        drop_tensor(&d_o);
        free_post_ref(&f);
        free(rg);
        free(before);
    }
    drop_tensor(&x), drop_tensor(&o), drop_tensor(&w), drop_tensor(&g), drop_tensor(&dy);
}

static void test_post(void **state)
{
    (void)state;
    for_each_shape(check_post);
}

/* ---- attention -------------------------------------------------------------------------- */

/* The last of n slices of keys; n = 11 needs more buffers than StarPU holds in a task. */
static void check_attention(bool llama, const int *kv_len, int n, bool first)
{
    struct sp_shape sh = shape_of(llama, 0, 0);
    int q_len = kv_len[n - 1], q_pos = 0;
    size_t nq = (size_t)(BATCH * q_len * sh.q_width);
    size_t nlse = (size_t)(BATCH * q_len * sh.model.heads);
    struct tensor q = random_tensor(nq, 21), o = tensor(nq), lse = tensor(nlse);
    struct tensor d_o = random_tensor(nq, 22), dq = tensor(nq), kv[16], dkv[16];
    starpu_data_handle_t kv_handles[16], dkv_handles[16];
    const float *kv_at[16];
    float *ro = floats(nq), *rlse = floats(nlse), *rdq = floats(nq), *rdkv[16];
    struct sp_attention at = {.batch = BATCH,
                              .heads = sh.model.heads,
                              .kv_heads = sh.model.kv_heads,
                              .head_dim = sh.model.head_dim,
                              .scale = 1.0f / sqrtf((float)sh.model.head_dim),
                              .q_len = q_len,
                              .n_kv = n,
                              .kv_len = kv_len};
    struct sp_attn t;
    struct sp_task_context ctx = test_context();

    for (int j = 0; j < n; j++) {
        size_t nkv = (size_t)(BATCH * kv_len[j] * sh.kv_width);

        kv[j] = random_tensor(nkv, 30 + (uint64_t)j);
        dkv[j] = random_tensor(nkv, 60 + (uint64_t)j);
        rdkv[j] = copy(&dkv[j]);
        if (first)
            memset(rdkv[j], 0, nkv * sizeof(float));
        kv_handles[j] = kv[j].handle;
        dkv_handles[j] = dkv[j].handle;
        kv_at[j] = kv[j].at;
        q_pos += j < n - 1 ? kv_len[j] : 0;
    }
    at.q_pos = q_pos;
    t = (struct sp_attn){.slice = n - 1,
                         .q_len = q_len,
                         .q_pos = q_pos,
                         .n_kv = n,
                         .kv_len = kv_len,
                         .q = q.handle,
                         .o = o.handle,
                         .lse = lse.handle,
                         .kv = kv_handles};
    sp_attn_fwd_insert(&ctx, &sh, &t, 0);
    sp_attn_bwd_insert(&ctx, &sh, &t, first, d_o.handle, dq.handle, dkv_handles, 0);
    starpu_task_wait_for_all();
    sp_attention(&at, q.at, kv_at, ro, rlse);
    sp_attention_bwd(&at, q.at, kv_at, ro, rlse, d_o.at, rdq, rdkv);
    assert_same_bits(o.at, ro, nq, "o");
    assert_same_bits(lse.at, rlse, nlse, "lse");
    assert_same_bits(dq.at, rdq, nq, "dq");
    for (int j = 0; j < n; j++) {
        assert_same_bits(dkv[j].at, rdkv[j], dkv[j].n, "dkv");
        drop_tensor(&kv[j]), drop_tensor(&dkv[j]);
        free(rdkv[j]);
    }
    drop_tensor(&q), drop_tensor(&o), drop_tensor(&lse), drop_tensor(&d_o), drop_tensor(&dq);
    free(ro), free(rlse), free(rdq);
}

static void test_attention(void **state)
{
    static const int lens[] = {3, 5, 2, 4, 1, 3, 2, 5, 1, 2, 4};
    static const int counts[] = {1, 2, 3, 4, 5, 9, 11}; /* 5 + 2n buffers */

    (void)state;
    for (int llama = 0; llama < 2; llama++)
        for (int first = 0; first < 2; first++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                check_attention(llama, lens, counts[i], first);
}

/* ---- embedding, head -------------------------------------------------------------------- */

static starpu_data_handle_t ids_handle(int32_t *ids, int vocab, uint64_t seed)
{
    starpu_data_handle_t handle;

    for (int i = 0; i < T; i++)
        ids[i] = draw_below(&seed, vocab);
    starpu_vector_data_register(&handle, STARPU_MAIN_RAM, (uintptr_t)ids, T, sizeof *ids);
    return handle;
}

static void check_embed(const struct sp_shape *sh)
{
    int h = sh->model.hidden;
    size_t nx = (size_t)(T * h);
    bool gpt = !sh->rms;
    struct tensor w = block(sh, SP_BLOCK_TOKENS, 41), p = block(sh, SP_BLOCK_POSITIONS, 42);
    struct tensor g = block(sh, SP_BLOCK_TOKENS, 43), gp = block(sh, SP_BLOCK_POSITIONS, 44);
    struct tensor x = tensor(nx), dx = random_tensor(nx, 45);
    float *rx = floats(nx), *rg = copy(&g), *rp = copy(&gp);
    int32_t ids[T];
    starpu_data_handle_t ih = ids_handle(ids, sh->model.vocab, 46);
    struct sp_task_context ctx = test_context();

    sp_embed_fwd_insert(&ctx, sh, ih, w.handle, gpt ? p.handle : NULL, x.handle, 0);
    sp_embed_wgrad_insert(&ctx, sh, ih, dx.handle, g.handle, gpt ? gp.handle : NULL);
    starpu_task_wait_for_all();
    sp_embed(BATCH, SEQ, h, 0, ids, w.at, gpt ? p.at : NULL, rx);
    sp_embed_bwd(BATCH, SEQ, h, 0, ids, dx.at, rg, gpt ? rp : NULL);
    assert_same_bits(x.at, rx, nx, "x");
    assert_same_bits(g.at, rg, g.n, "token gradient");
    assert_same_bits(gp.at, rp, gp.n, "position gradient");
    drop_tensor(&w), drop_tensor(&p), drop_tensor(&g), drop_tensor(&gp), drop_tensor(&x);
    drop_tensor(&dx);
    starpu_data_unregister(ih);
    free(rx), free(rg), free(rp);
}

static void check_head(const struct sp_shape *sh)
{
    int h = sh->model.hidden, V = sh->model.vocab;
    size_t nx = (size_t)(T * h);
    enum sp_block_kind table = sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    struct tensor wn = block(sh, SP_BLOCK_NORM, 51), w = block(sh, table, 52);
    struct tensor gn = block(sh, SP_BLOCK_NORM, 53), g = block(sh, table, 54);
    struct tensor x = random_tensor(nx, 55), dx = tensor(nx);
    float *n = floats(nx), *stats = floats(2 * T), *dn = floats(nx), *rn = copy(&gn);
    float *rg = copy(&g), *logits = floats((size_t)(sh->head_rows * V)), *rdx = floats(nx);
    double tally[SP_TALLIES] = {3.25, 7}, loss = 3.25;
    int32_t targets[T];
    starpu_data_handle_t ih = ids_handle(targets, V, 56), th;
    struct sp_task_context ctx = test_context();

    starpu_vector_data_register(&th, STARPU_MAIN_RAM, (uintptr_t)tally, SP_TALLIES, sizeof *tally);
    sp_head_insert(&ctx, sh, x.handle, ih, wn.handle, w.handle, gn.handle, g.handle, dx.handle, th,
                   0);
    starpu_task_wait_for_all();
    sp_norm(sh->rms, T, h, sh->model.norm_eps, x.at, wn.at, sp_at(wn.at, sh->norm_bias), n, stats);
    sp_cross_entropy(T, h, V, sh->head_rows, n, w.at, targets, sh->loss_scale, &loss, dn, rg,
                     logits);
    sp_norm_bwd(sh->rms, T, h, x.at, stats, wn.at, dn, NULL, rdx, rn, sp_at(rn, sh->norm_bias));
    assert_same_bits(dx.at, rdx, nx, "dx");
    assert_same_bits(gn.at, rn, gn.n, "norm gradient");
    assert_same_bits(g.at, rg, g.n, "table gradient");
    assert_memory_equal(&tally[SP_TALLY_LOSS], &loss, sizeof loss);
    assert_true(tally[SP_TALLY_SUMSQ] == 7);
    drop_tensor(&wn), drop_tensor(&w), drop_tensor(&gn), drop_tensor(&g), drop_tensor(&x);
    drop_tensor(&dx);
    starpu_data_unregister(ih);
    starpu_data_unregister(th);
    free(n), free(stats), free(dn), free(rn), free(rg), free(logits), free(rdx);
}

/* Rows 5 to 10, which are not the first and not all; what lies between V and ld stays. */
static void check_logits(const struct sp_shape *sh)
{
    enum { FIRST = 5, ROWS = 6 };
    int h = sh->model.hidden, V = sh->model.vocab, ld = sp_logits_ld(V);
    enum sp_block_kind table = sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    struct tensor wn = block(sh, SP_BLOCK_NORM, 57), w = block(sh, table, 58);
    struct tensor x = random_tensor((size_t)(T * h), 59), z = tensor((size_t)(ROWS * ld));
    float *n = floats((size_t)(ROWS * h)), *rz = floats((size_t)(ROWS * ld));
    struct sp_task_context ctx = test_context();

    sp_logits_insert(&ctx, sh, FIRST, ROWS, x.handle, wn.handle, w.handle, z.handle);
    starpu_task_wait_for_all();
    sp_norm(sh->rms, ROWS, h, sh->model.norm_eps, x.at + FIRST * h, wn.at,
            sp_at(wn.at, sh->norm_bias), n, NULL);
    sp_linear(ROWS, h, V, n, w.at, NULL, rz, ld);
    for (int r = 0; r < ROWS; r++) {
        assert_same_bits(z.at + r * ld, rz + r * ld, (size_t)V, "logits");
        for (int i = V; i < ld; i++)
            assert_true(isnan(z.at[r * ld + i]));
    }
    drop_tensor(&wn), drop_tensor(&w), drop_tensor(&x), drop_tensor(&z);
    free(n), free(rz);
}

static void test_logits(void **state)
{
    (void)state;
    for_each_shape(check_logits);
}

static void test_embed(void **state)
{
    (void)state;
    for_each_shape(check_embed);
}

static void test_head(void **state)
{
    (void)state;
    for_each_shape(check_head);
}

/* ---- the end of a step ------------------------------------------------------------------ */

static void test_sums(void **state)
{
    struct tensor a = random_tensor(1001, 71), b = random_tensor(1001, 72);
    float *ra = copy(&a);
    double tally[SP_TALLIES] = {5, 2.5}, sum = 2.5;
    starpu_data_handle_t th;
    struct sp_task_context ctx = test_context();

    (void)state;
    starpu_vector_data_register(&th, STARPU_MAIN_RAM, (uintptr_t)tally, SP_TALLIES, sizeof *tally);
    sp_sumsq_insert(&ctx, a.handle, th);
    starpu_task_wait_for_all();
    sp_sumsq(a.n, a.at, &sum);
    assert_memory_equal(&tally[SP_TALLY_SUMSQ], &sum, sizeof sum);
    assert_true(tally[SP_TALLY_LOSS] == 5);

    sp_sum_insert(&ctx, SP_F32, a.handle, b.handle, false);
    starpu_task_wait_for_all();
    sp_add(a.n, b.at, ra);
    assert_same_bits(a.at, ra, a.n, "a + b");
    assert_true(b.at[17] != a.at[17]);
    sp_sum_insert(&ctx, SP_F32, a.handle, b.handle, true);
    starpu_task_wait_for_all();
    assert_same_bits(a.at, b.at, a.n, "both sums");
    starpu_data_unregister(th);
    drop_tensor(&a), drop_tensor(&b);
    free(ra);
}

static float *ref_w, *ref_g, *ref_m, *ref_v;

static void update_reference(void *arg, const struct sp_tensor *t)
{
    const struct sp_update *step_hp = arg;
    struct sp_adamw hp = {.lr = step_hp->lr,
                          .beta1 = step_hp->beta1,
                          .beta2 = step_hp->beta2,
                          .eps = step_hp->eps,
                          .weight_decay = t->is_vector ? 0 : step_hp->weight_decay,
                          .bias1 = step_hp->bias1,
                          .bias2 = step_hp->bias2,
                          .grad_scale = step_hp->factor};
    size_t at = t->offset;

    sp_adamw((size_t)t->rows * (size_t)t->cols, &hp, ref_w + at, ref_g + at, ref_m + at,
             ref_v + at);
}

/* A block updated part by part, the last one longer than what is left: as in one piece. */
static void check_parts(const struct sp_params *params, enum sp_block_kind kind, int layer,
                        const struct sp_update *hp)
{
    size_t n = sp_block_elements(&params->model, kind), part = (n / 3 + 7) / 8 * 8;
    struct sp_task_context ctx = test_context();
    struct tensor whole[4], piece[4];

    for (int i = 0; i < 4; i++) {
        whole[i] = random_tensor(n, 91 + (uint64_t)i);
        for (size_t k = 0; i == 3 && k < n; k++)
            whole[i].at[k] = fabsf(whole[i].at[k]);
    }
    for (size_t first = 0; first < n; first += part) {
        size_t here = n - first < part ? n - first : part;

        for (int i = 0; i < 4; i++) {
            piece[i] = tensor(part);
            memset(piece[i].at, 0, part * sizeof(float));
            memcpy(piece[i].at, whole[i].at + first, here * sizeof(float));
        }
        sp_update_insert(&ctx, params, kind, layer, first, hp, piece[0].handle, piece[1].handle,
                         piece[2].handle, piece[3].handle, SP_F32, NULL);
        starpu_task_wait_for_all();
        ref_w = copy(&whole[0]), ref_g = copy(&whole[1]);
        ref_m = copy(&whole[2]), ref_v = copy(&whole[3]);
        sp_block_each(params, kind, layer, update_reference, (void *)hp);
        assert_same_bits(piece[0].at, ref_w + first, here, "w");
        assert_same_bits(piece[1].at, ref_g + first, here, "g");
        assert_same_bits(piece[2].at, ref_m + first, here, "m");
        assert_same_bits(piece[3].at, ref_v + first, here, "v");
        free(ref_w), free(ref_g), free(ref_m), free(ref_v);
        for (int i = 0; i < 4; i++)
            drop_tensor(&piece[i]);
    }
    for (int i = 0; i < 4; i++)
        drop_tensor(&whole[i]);
}

static void check_rounded(starpu_data_handle_t low, const float *w, size_t n)
{
    const uint16_t *got;

    starpu_data_acquire(low, STARPU_R);
    got = starpu_data_get_local_ptr(low);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], sp_bf16(w[i]));
    starpu_data_release(low);
}

static void test_update(void **state)
{
    struct sp_update hp = {.lr = 0.01f,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .eps = 1e-8f,
                           .weight_decay = 0.3f,
                           .bias1 = 0.19f,
                           .bias2 = 0.0975f,
                           .factor = 0.7f};
    struct sp_task_context ctx = test_context();

    (void)state;
    for (int k = 0; k < 2 * SP_BLOCK_KINDS; k++) {
        enum sp_block_kind kind = (enum sp_block_kind)(k % SP_BLOCK_KINDS);
        bool in_layer = kind == SP_BLOCK_NORM1 || kind == SP_BLOCK_QKV || kind == SP_BLOCK_POST;
        int layer = in_layer ? 0 : -1;
        struct sp_shape sh = shape_of(k >= SP_BLOCK_KINDS, 0, 0);
        struct sp_params params;
        struct tensor w, g, m, v;
        starpu_data_handle_t low;

        if (!sp_block_elements(&sh.model, kind))
            continue;
        assert_int_equal(sp_params_create(&sh.model, &params), 0);
        w = block(&sh, kind, 81), g = block(&sh, kind, 82);
        m = block(&sh, kind, 83), v = block(&sh, kind, 84);
        for (size_t i = 0; i < v.n; i++)
            v.at[i] = fabsf(v.at[i]);
        ref_w = copy(&w), ref_g = copy(&g), ref_m = copy(&m), ref_v = copy(&v);
        sp_vector_register(&low, w.n, sizeof(uint16_t), "rounded w");
        sp_round_insert(&ctx, w.handle, SP_BF16, low);
        starpu_task_wait_for_all();
        check_rounded(low, ref_w, w.n);
        sp_update_insert(&ctx, &params, kind, layer, 0, &hp, w.handle, g.handle, m.handle, v.handle,
                         k % 3 ? SP_BF16 : SP_F32, low);
        starpu_task_wait_for_all();
        sp_block_each(&params, kind, layer, update_reference, &hp);
        if (k % 3)
            check_rounded(low, ref_w, w.n);
        starpu_data_unregister_no_coherency(low);
        assert_same_bits(w.at, ref_w, w.n, "w");
        assert_same_bits(g.at, ref_g, g.n, "g");
        assert_same_bits(m.at, ref_m, m.n, "m");
        assert_same_bits(v.at, ref_v, v.n, "v");
        free(ref_w), free(ref_g), free(ref_m), free(ref_v);
        check_parts(&params, kind, layer, &hp);
        drop_tensor(&w), drop_tensor(&g), drop_tensor(&m), drop_tensor(&v);
        sp_params_destroy(&params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pre),    cmocka_unit_test(test_halves),
        cmocka_unit_test(test_post),   cmocka_unit_test(test_attention),
        cmocka_unit_test(test_embed),  cmocka_unit_test(test_head),
        cmocka_unit_test(test_logits), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_update),
    };

    return cmocka_run_group_tests(tests, start_one_worker, stop_one_worker);
}
