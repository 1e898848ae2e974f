/* Embedding, head and logits: tasks equal the kernels, bit for bit. */
#include "engine/codelets.h"
#include "sinks/starpu/sink.h"

static struct sp_tensor *ids_handle(int32_t *ids, int vocab, uint64_t seed)
{
    struct sp_tensor *handle;

    for (int i = 0; i < T; i++)
        ids[i] = draw_below(&seed, vocab);
    handle = sp_tensor_make_at(sp_starpu_sink(), ids, T, sizeof *ids, "test");
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
    struct sp_tensor *ih = ids_handle(ids, sh->model.vocab, 46);
    struct sp_task_context ctx = test_context();

    sp_embed_fwd_insert(&ctx, sh, ih, w.handle, gpt ? p.handle : NULL, x.handle, 0);
    sp_embed_wgrad_insert(&ctx, sh, ih, dx.handle, g.handle, gpt ? gp.handle : NULL);
    starpu_task_wait_for_all();
    sp_embed(&(struct sp_embed){.batch = BATCH, .len = SEQ, .h = h, .ids = ids}, w.at,
             gpt ? p.at : NULL, rx);
    sp_embed_bwd(&(struct sp_embed){.batch = BATCH, .len = SEQ, .h = h, .ids = ids}, dx.at, rg,
                 gpt ? rp : NULL);
    assert_same_bits(x.at, rx, nx, "x");
    assert_same_bits(g.at, rg, g.n, "token gradient");
    assert_same_bits(gp.at, rp, gp.n, "position gradient");
    drop_tensor(&w), drop_tensor(&p), drop_tensor(&g), drop_tensor(&gp), drop_tensor(&x);
    drop_tensor(&dx);
    sp_tensor_unmake_at(ih);
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
    struct sp_tensor *ih = ids_handle(targets, V, 56), *th;
    struct sp_task_context ctx = test_context();

    th = sp_tensor_make_at(sp_starpu_sink(), tally, SP_TALLIES, sizeof *tally, "test");
    sp_head_insert(&ctx, sh, x.handle, ih, wn.handle, w.handle, gn.handle, g.handle, dx.handle, th,
                   0);
    starpu_task_wait_for_all();
    sp_norm(&(struct sp_norm){.rms = sh->rms,
                              .T = T,
                              .h = h,
                              .eps = sh->model.norm_eps,
                              .gain = wn.at,
                              .bias = sp_at(wn.at, sh->norm_bias)},
            x.at, n, stats);
    sp_cross_entropy(&(struct sp_logits){.T = T,
                                         .h = h,
                                         .V = V,
                                         .rows = sh->head_rows,
                                         .x = n,
                                         .w = w.at,
                                         .targets = targets,
                                         .scale = sh->loss_scale,
                                         .scratch = logits},
                     &loss, dn, rg);
    sp_norm_bwd(
        &(struct sp_norm){.rms = sh->rms, .T = T, .h = h, .gain = wn.at}, x.at, stats,
        &(struct sp_norm_bwd){.dy = dn, .dx = rdx, .dgain = rn, .dbias = sp_at(rn, sh->norm_bias)});
    assert_same_bits(dx.at, rdx, nx, "dx");
    assert_same_bits(gn.at, rn, gn.n, "norm gradient");
    assert_same_bits(g.at, rg, g.n, "table gradient");
    assert_memory_equal(&tally[SP_TALLY_LOSS], &loss, sizeof loss);
    assert_true(tally[SP_TALLY_SUMSQ] == 7);
    drop_tensor(&wn), drop_tensor(&w), drop_tensor(&gn), drop_tensor(&g), drop_tensor(&x);
    drop_tensor(&dx);
    sp_tensor_unmake_at(ih);
    sp_tensor_unmake_at(th);
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
    sp_norm(&(struct sp_norm){.rms = sh->rms,
                              .T = ROWS,
                              .h = h,
                              .eps = sh->model.norm_eps,
                              .gain = wn.at,
                              .bias = sp_at(wn.at, sh->norm_bias)},
            x.at + FIRST * h, n, NULL);
    sp_linear(&(struct sp_linear){.T = ROWS, .in = h, .out = V, .w = w.at, .ld = ld}, n, rz);
    for (int r = 0; r < ROWS; r++) {
        assert_same_bits(z.at + r * ld, rz + r * ld, (size_t)V, "logits");
        for (int i = V; i < ld; i++)
            assert_true(isnan(z.at[r * ld + i]));
    }
    drop_tensor(&wn), drop_tensor(&w), drop_tensor(&x), drop_tensor(&z);
    free(n), free(rz);
}

TEST(test_logits)
{
    for_each_shape(check_logits);
}

TEST(test_embed)
{
    for_each_shape(check_embed);
}

TEST(test_head)
{
    for_each_shape(check_head);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
