/* Embedding, head and logits: tasks equal the kernels, bit for bit. */
#include "engine/codelets.h"

struct ids {
    int32_t *at; /* [T] */
    struct sp_tensor *handle;
};

static struct ids random_ids(int vocab, uint64_t seed)
{
    struct ids ids = {.at = test_bytes(T * sizeof(int32_t))};

    for (int i = 0; i < T; i++)
        ids.at[i] = draw_below(&seed, vocab);
    ids.handle = tensor_at(ids.at, T, sizeof(int32_t));
    return ids;
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
    struct ids ids = random_ids(sh->model.vocab, 46);
    const struct sp_embed e = {.batch = BATCH, .len = SEQ, .h = h, .ids = ids.at};
    struct sp_task_context ctx = test_context();

    sp_embed_fwd_insert(&ctx, sh, ids.handle, w.handle, gpt ? p.handle : NULL, x.handle, 0);
    sp_embed_wgrad_insert(&ctx, sh, ids.handle, dx.handle, g.handle, gpt ? gp.handle : NULL);
    starpu_task_wait_for_all();
    sp_embed(&e, w.at, gpt ? p.at : NULL, rx);
    sp_embed_bwd(&e, dx.at, rg, gpt ? rp : NULL);
    assert_same_bits(x.at, rx, nx, "x");
    assert_same_bits(g.at, rg, g.n, "token gradient");
    assert_same_bits(gp.at, rp, gp.n, "position gradient");
}

static void check_head(const struct sp_shape *sh)
{
    size_t nx = (size_t)(T * sh->model.hidden);
    enum sp_block_kind table = sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    struct tensor wn = block(sh, SP_BLOCK_NORM, 51), w = block(sh, table, 52);
    struct tensor gn = block(sh, SP_BLOCK_NORM, 53), g = block(sh, table, 54);
    struct tensor x = random_tensor(nx, 55), dx = tensor(nx);
    float *n = floats(nx), *stats = floats(2 * T), *dn = floats(nx), *rn = copy(&gn);
    float *rg = copy(&g), *rdx = floats(nx);
    struct ids targets = random_ids(sh->model.vocab, 56);
    struct tally tally = tally_of(3.25, 7);
    const struct sp_norm norm = sp_block_norm(sh, T, wn.at);
    const struct sp_logits head = head_of(sh, n, w.at, targets.at);
    struct sp_task_context ctx = test_context();
    double loss = 3.25;

    sp_head_insert(&ctx, sh, x.handle, targets.handle, wn.handle, w.handle, gn.handle, g.handle,
                   dx.handle, tally.handle, 0);
    starpu_task_wait_for_all();
    sp_norm(&norm, x.at, n, stats);
    sp_cross_entropy(&head, &loss, dn, rg);
    sp_norm_bwd(
        &norm, x.at, stats,
        &(struct sp_norm_bwd){.dy = dn, .dx = rdx, .dgain = rn, .dbias = sp_at(rn, sh->norm_bias)});
    assert_same_bits(dx.at, rdx, nx, "dx");
    assert_same_bits(gn.at, rn, gn.n, "norm gradient");
    assert_same_bits(g.at, rg, g.n, "table gradient");
    assert_memory_equal(&tally.at[SP_TALLY_LOSS], &loss, sizeof loss);
    assert_true(tally.at[SP_TALLY_SUMSQ] == 7);
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
    const struct sp_norm norm = sp_block_norm(sh, ROWS, wn.at);
    struct sp_task_context ctx = test_context();

    sp_logits_insert(&ctx, sh, FIRST, ROWS, x.handle, wn.handle, w.handle, z.handle);
    starpu_task_wait_for_all();
    sp_norm(&norm, x.at + FIRST * h, n, NULL);
    sp_linear(&(struct sp_linear){.T = ROWS, .in = h, .out = V, .w = w.at, .ld = ld}, n, rz);
    for (int r = 0; r < ROWS; r++) {
        assert_same_bits(z.at + r * ld, rz + r * ld, (size_t)V, "logits");
        for (int i = V; i < ld; i++)
            assert_true(isnan(z.at[r * ld + i]));
    }
}

TEST(logits)
{
    for_each_shape(check_logits);
}

TEST(embed)
{
    for_each_shape(check_embed);
}

TEST(head)
{
    for_each_shape(check_head);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
