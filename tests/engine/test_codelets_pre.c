/* Norm and projections before attention, whole and in halves: tasks equal the kernels, bit for bit. */
#include "engine/codelets.h"

/* Raw heads of queries (T,qw) and of keys (T,kw/2), and q and kv with those normalised. */
static void normalised(const struct sp_shape *sh, const float *n1, float *w, float *raw_q,
                       float *raw_k, float *q, float *kv)
{
    const struct sp_model *m = &sh->model;
    int qw = sh->q_width, kw = sh->kv_width / 2;
    const struct sp_linear to_q = qkv_product(sh, w, 0, qw), to_k = qkv_product(sh, w, qw, kw);
    struct sp_linear to_v = qkv_product(sh, w, qw + kw, kw);
    const struct sp_norm of_q = head_norm(sh, T * m->heads, w + sh->q_gain);
    const struct sp_norm of_k = head_norm(sh, m->kv_heads, w + sh->k_gain);

    to_v.ld = 2 * kw; /* kv's rows are keys, then values */
    sp_linear(&to_q, n1, raw_q);
    sp_linear(&to_k, n1, raw_k);
    sp_linear(&to_v, n1, kv + kw);
    sp_norm(&of_q, raw_q, q, NULL);
    for (int t = 0; t < T; t++)
        sp_norm(&of_k, raw_k + t * kw, kv + 2 * t * kw, NULL);
}

/* dq and the keys of dkv through the norms of heads, gains of g += ; the rest of dkv stays. */
static void norms_back(const struct sp_shape *sh, const float *n1, float *w, float *dq, float *dkv,
                       float *g)
{
    const struct sp_model *m = &sh->model;
    int nq = T * m->heads, nk = T * m->kv_heads, d = m->head_dim, kw = sh->kv_width / 2;
    float *raw_q = floats((size_t)(nq * d)), *raw_k = floats((size_t)(nk * d));
    float *q = floats((size_t)(nq * d)), *kv = floats((size_t)(2 * nk * d));
    float *stats = floats((size_t)(2 * nq)), *dk = floats((size_t)(nk * d));
    const struct sp_norm of_q = head_norm(sh, nq, w + sh->q_gain);
    const struct sp_norm of_k = head_norm(sh, nk, w + sh->k_gain);

    normalised(sh, n1, w, raw_q, raw_k, q, kv);
    sp_norm(&of_q, raw_q, q, stats);
    sp_norm_bwd(&of_q, raw_q, stats,
                &(struct sp_norm_bwd){.dy = dq, .dx = dq, .dgain = g + sh->q_gain});
    for (int t = 0; t < T; t++)
        memcpy(dk + t * kw, dkv + 2 * t * kw, (size_t)kw * sizeof *dk);
    sp_norm(&of_k, raw_k, q, stats);
    sp_norm_bwd(&of_k, raw_k, stats,
                &(struct sp_norm_bwd){.dy = dk, .dx = dk, .dgain = g + sh->k_gain});
    for (int t = 0; t < T; t++)
        memcpy(dkv + 2 * t * kw, dk + t * kw, (size_t)kw * sizeof *dk);
}

static void check_pre(const struct sp_shape *sh)
{
    int h = sh->model.hidden, qw = sh->q_width, kw = sh->kv_width;
    size_t nx = (size_t)T * (size_t)h, nq = (size_t)T * (size_t)qw, nkv = (size_t)T * (size_t)kw;
    struct tensor x = random_tensor(nx, 1), wn = block(sh, SP_BLOCK_NORM1, 2);
    struct tensor w = block(sh, SP_BLOCK_QKV, 3), gn = block(sh, SP_BLOCK_NORM1, 4);
    struct tensor g = block(sh, SP_BLOCK_QKV, 5), dr = random_tensor(nx, 6);
    float *n1 = floats(nx), *stats = floats(2 * T), *q = floats(nq), *kv = floats(nkv);
    const struct sp_norm norm = sp_block_norm(sh, T, wn.at);
    const struct sp_linear to_q = qkv_product(sh, w.at, 0, qw);
    const struct sp_linear to_kv = qkv_product(sh, w.at, qw, kw);
    struct sp_task_context ctx = test_context();

    sp_norm(&norm, x.at, n1, stats);
    sp_linear(&to_q, n1, q);
    sp_linear(&to_kv, n1, kv);
    if (sh->model.qk_norm)
        normalised(sh, n1, w.at, floats(nq), floats(nkv), q, kv);
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
            continue;

        rdq = copy(&dq), rdkv = copy(&dkv), rn = copy(&gn), rg = copy(&g);
        if (keep_outputs)
            make_stale(sh, SP_BLOCK_QKV, &g, rg);
        sp_pre_bwd_insert(&ctx, sh, &pre, wn.handle, w.handle, gn.handle, g.handle, false,
                          dq.handle, dkv.handle, dr.handle, dx.handle);
        sp_pre_wgrad_insert(&ctx, sh, &pre, wn.handle, dq.handle, dkv.handle, g.handle, 0);
        starpu_task_wait_for_all();
        rotate(sh, true, rdq, rdkv);
        if (!keep_outputs)
            sp_norm_apply(&norm, x.at, stats, n1);
        if (sh->model.qk_norm)
            norms_back(sh, n1, w.at, rdq, rdkv, rg);
        sp_linear_dx(&to_q, rdq, dn, false);
        sp_linear_dx(&to_kv, rdkv, dn, true);
        sp_norm_bwd(
            &norm, x.at, stats,
            &(struct sp_norm_bwd){
                .dy = dn, .dres = dr.at, .dx = dn, .dgain = rn, .dbias = sp_at(rn, sh->norm_bias)});
        gbias = sp_at(rg, sh->qkv_bias);
        sp_linear_dw(&to_q, n1, rdq, rg + sh->qkv, gbias);
        sp_linear_dw(&to_kv, n1, rdkv, rg + sh->qkv + (size_t)qw * (size_t)h,
                     gbias ? gbias + qw : NULL);
        assert_same_bits(dx.at, dn, nx, "dx");
        assert_same_bits(dq.at, rdq, nq, "dq");
        assert_same_bits(dkv.at, rdkv, nkv, "dkv");
        assert_same_bits(gn.at, rn, gn.n, "norm1 gradient");
        assert_same_bits(g.at, rg, g.n, "qkv gradient");
    }
}

TEST(pre)
{
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
            continue;
        assert_same_bits(n1.at, all.n1, nx, "n1");
        sp_qkv_fwd_insert(&ctx, sh, n1.handle, w.handle, q2.handle, kv2.handle, 0);
        starpu_task_wait_for_all();
        assert_same_bits(q2.at, q.at, nq, "q");
        assert_same_bits(kv2.at, kv.at, nkv, "kv");
        if (!has)
            continue;

        if (fresh)
            memset(g.at, 0, g.n * sizeof *g.at);
        sp_pre_bwd_insert(&ctx, sh, &pre, wn.handle, w.handle, gn.handle, g.handle, false,
                          dq.handle, dkv.handle, dr.handle, dx.handle);
        sp_pre_wgrad_insert(&ctx, sh, &pre, wn.handle, dq.handle, dkv.handle, g.handle, 0);
        sp_qkv_bwd_insert(&ctx, sh, n1.handle, w.handle, dq2.handle, dkv2.handle, dn1.handle,
                          g2.handle, false, fresh);
        sp_qkv_wgrad_insert(&ctx, sh, n1.handle, dq2.handle, dkv2.handle, g2.handle, fresh, 0);
        sp_norm_bwd_insert(&ctx, sh, &half, wn.handle, gn2.handle, dn1.handle, dr.handle,
                           dx2.handle, 0);
        starpu_task_wait_for_all();
        assert_same_bits(dx2.at, dx.at, nx, "dx");
        assert_same_bits(gn2.at, gn.at, gn.n, "norm1 gradient");
        assert_same_bits(g2.at, g.at, g.n, "qkv gradient");
    }
}

TEST(halves)
{
    for_each_shape(check_halves);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
