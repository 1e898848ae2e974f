/* Embedding and loss on the emulated device, against the CPU's. */
#include "../head_cases.h"
#include "cuda_test.h"

/* `off`: elements before the table */
static void embed(enum sp_dtype t, struct sp_embed e, int V, size_t off)
{
    int rows = e.batch * e.len;
    size_t n = (size_t)rows * (size_t)e.h, n_table = (size_t)V * (size_t)e.h + off;
    size_t n_pos = (size_t)(e.here ? e.here : e.pos0 + e.len * (1 + e.skip) + 2) * (size_t)e.h;
    const struct sp_backend *k = sp_emulated_backend(t);
    float *table = new_random(n_table, 1), *pos = new_random(n_pos, 2), *dx = new_random(n, 3);
    float *dtable = new_random(n_table, 4), *dpos = new_random(n_pos, 5), *x = new_nan(n);
    float *want_table = new_copy(n_table, dtable), *want_pos = new_copy(n_pos, dpos);
    float *plain = new_nan(n);
    void *ttable = new_typed(t, n_table, table), *tpos = new_typed(t, n_pos, pos);
    void *tdx = new_typed(t, n, dx);
    int32_t *ids = test_bytes((size_t)rows * sizeof *ids);

    /* Few distinct tokens, so that many rows meet; the first and the last of the table too, and ones that are not
     * in this part of it. */
    for (int r = 0; r < rows; r++)
        ids[r] = r % 11 == 7 ? -1 : r % 5 == 4 ? V - 1 : (r * r * 7 + 3 * r) % V;
    e.ids = ids;
    sp_embed(&e, table + off, pos, x);
    sp_embed(&e, table + off, NULL, plain);
    sp_embed_bwd(&e, dx, want_table + off, want_pos);
    printf("    %d x %d rows of %d, %d tokens%s\n", e.batch, e.len, e.h, V,
           off ? ", not aligned" : "");
    for (unsigned order = 0; order < ORDERS; order++) {
        void *tx = new_typed_nan(t, n + 1);
        float *got_table = new_copy(n_table, dtable), *got_pos = new_copy(n_pos, dpos);

        sp_emulated_order(order);
        k->embed(k, &e, at(t, ttable, off), tpos, tx);
        sp_emulated_wait();
        assert_typed("embed", t, n, tx, x, 1e-7);
        assert_same_bytes(t, 1, at(t, tx, n), "\xff\xff\xff\xff");
        k->embed(k, &e, at(t, ttable, off), NULL, tx);
        sp_emulated_wait();
        assert_typed("embed without positions", t, n, tx, plain, 0);
        /* The order of the CPU: its bits. */
        k->embed_bwd(k, &e, tdx, got_table + off, got_pos);
        sp_emulated_wait();
        assert_same_bits(n_table, got_table, want_table);
        assert_same_bits(n_pos, got_pos, want_pos);
        memcpy(got_table, dtable, n_table * sizeof *dtable);
        k->embed_bwd(k, &e, tdx, got_table + off, NULL);
        sp_emulated_wait();
        assert_same_bits(n_table, got_table, want_table);
    }
    sp_emulated_order(0);
}

TEST(embed)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        embed(t, (struct sp_embed){1, 7, 24, 0, 0, NULL, 0}, 11, 0);
        embed(t, (struct sp_embed){3, 5, 10, 4, 0, NULL, 0}, 6, 0);
        embed(t, (struct sp_embed){2, 67, 99, 13, 0, NULL, 0}, 17, 0);
        embed(t, (struct sp_embed){2, 67, 96, 13, 0, NULL, 0}, 170, 1);
        embed(t, (struct sp_embed){3, 9, 24, -3, 4, NULL, 0}, 11, 0); /* positions of a part */
        embed(t, (struct sp_embed){2, 5, 10, 4, 7, NULL, 0}, 11, 0);
        embed(t, (struct sp_embed){2, 5, 16, -5, 4, NULL, 0}, 11, 0);
        embed(t, (struct sp_embed){2, 5, 16, 6, 4, NULL, 0}, 11, 0);
        embed(t, (struct sp_embed){2, 23, 16, -7, 9, NULL, 3}, 11, 0); /* every fourth position */
        embed(t, (struct sp_embed){2, 23, 24, 5, 0, NULL, 2}, 11, 0);
        embed(t, (struct sp_embed){1, 1, 2056, 0, 0, NULL, 0}, 1, 0);
        embed(t, (struct sp_embed){3, 411, 16, 3, 0, NULL, 0}, 29,
              0); /* more tokens than a tile of them */
    }
}

/*
 * The CPU's loss is of exact logits, ours of bf16 logits, each off by 2^-9 of it: so is the loss,
 * and a probability by the largest of them.
 */
static void loss(enum sp_dtype t, struct sp_logits head, size_t off)
{
    int T = head.T, h = head.h, V = head.V, rows = head.rows, ld = sp_logits_ld(V);
    size_t n_x = (size_t)T * (size_t)h, n_w = (size_t)V * (size_t)h, n_z = (size_t)(rows * ld);
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(n_x, 1), *w = new_random(n_w, 2), *dx = new_nan(n_x);
    float *dw = new_random(n_w, 3), *want_dw = new_copy(n_w, dw), *z = new_nan(n_z);
    void *tx = new_typed(t, n_x, x), *tw = new_typed(t, n_w, w), *kept_dx = NULL;
    float *kept_dw = NULL;
    int32_t *targets = test_bytes((size_t)T * sizeof *targets);
    double want = 2.5, kept = 0, tolerance = t == SP_BF16 ? 2e-2 : BOTH;

    for (int r = 0; r < T; r++)
        targets[r] = r == 0 ? V - 1 : r * 5 % V;
    head = head_with(head, x, w, z);
    head.targets = targets;
    sp_cross_entropy(&head, &want, dx, want_dw);
    printf("    %d rows of %d, %d tokens, %d rows at a time%s\n", T, h, V, rows,
           off ? ", not aligned" : "");
    for (unsigned order = 0; order < ORDERS; order++) {
        void *scratch = new_typed_nan(t, n_z + off + 1), *tdx = new_typed_nan(t, n_x);
        void *alone = new_typed_nan(t, n_x);
        float *got_dw = new_copy(n_w, dw);
        double *got = test_bytes(sizeof *got);
        const struct sp_logits low = head_with(head, tx, tw, at(t, scratch, off));

        *got = 2.5;
        sp_emulated_order(order);
        k->cross_entropy(k, &low, got, tdx, got_dw);
        sp_emulated_wait();
        assert_same_bytes(t, 1, at(t, scratch, n_z + off), "\xff\xff\xff\xff");
        if (order == 0) {
            printf("    %s loss %.9f, f32 %.9f\n", sp_dtype_name(t), *got, want);
            assert_true(fabs(*got - want) <= (t == SP_BF16 ? 1e-3 : 1e-6) * fabs(want));
            assert_typed("dx =", t, n_x, tdx, dx, tolerance);
            assert_close_floats("dw +=", n_w, got_dw, want_dw, tolerance);
            kept = *got, kept_dx = tdx, kept_dw = got_dw;
        } else {
            assert_true(*got == kept);
            assert_same_bytes(t, n_x, tdx, kept_dx);
            assert_same_bits(n_w, got_dw, kept_dw);
        }
        *got = 2.5;
        k->cross_entropy(k, &low, got, alone, NULL);
        sp_emulated_wait();
        assert_true(*got == kept);
        assert_same_bytes(t, n_x, alone, kept_dx);
        got_dw = new_copy(n_w, dw);
        k->cross_entropy(k, &low, got, NULL, got_dw);
        sp_emulated_wait();
        assert_same_bits(n_w, got_dw, kept_dw);
        *got = 2.5;
        k->cross_entropy(k, &low, got, NULL, NULL);
        sp_emulated_wait();
        assert_true(*got == kept);
    }
    sp_emulated_order(0);
}

TEST(loss)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        loss(t, head_of(7, 10, 37, 7), 0);
        loss(t, head_of(7, 10, 37, 3), 0);
        loss(t, head_of(7, 10, 40, 20), 0);
        loss(t, head_of(5, 10, 1, 2), 0);
        loss(t, head_of(5, 10, 37, 2), 1);
        loss(t, head_of(13, 24, 5003, 9), 0);
    }
}

/* A part of the vocabulary, then another: what the CPU's kernels say of the same. */
static void vocabulary(enum sp_dtype t, struct sp_logits head, size_t off)
{
    int T = head.T, h = head.h, V = head.V, rows = head.rows;
    const struct sp_backend *k = sp_emulated_backend(t), *cpu = sp_cpu_backend(SP_F32);
    size_t n_x = (size_t)T * (size_t)h, n_w = (size_t)V * (size_t)h, n_s = 2 * (size_t)T;
    size_t n_z = (size_t)rows * (size_t)sp_logits_ld(V);
    float *x = new_random(n_x, 1), *w = new_random(n_w, 2), *dw = new_random(n_w, 3);
    float *want_dw = new_copy(n_w, dw), *got_dw = new_copy(n_w, dw), *dx = new_nan(n_x);
    float *stats[2] = {new_nan(n_s), new_random(n_s, 4)}, *got[2] = {new_nan(n_s), stats[1]};
    float *lse = new_nan((size_t)T), *got_lse = new_nan((size_t)T), *z = new_nan(n_z);
    float *merged = new_nan(n_s);
    void *tx = new_typed(t, n_x, x), *tw = new_typed(t, n_w, w), *tdx = new_typed_nan(t, n_x);
    void *scratch = new_typed_nan(t, n_z + off);
    int32_t *targets = test_bytes((size_t)T * sizeof *targets);
    double want = 2.5, loss = 2.5, tolerance = t == SP_BF16 ? 2e-2 : BOTH;
    struct sp_logits low;

    for (int r = 0; r < T; r++)
        targets[r] = r % 3 == 1 ? -1 : r == 0 ? V - 1 : r * 5 % V;
    head.targets = targets;
    low = head_with(head, tx, tw, at(t, scratch, off));
    head = head_with(head, x, w, z);
    cpu->logit_stats(cpu, &head, stats[0]);
    k->logit_stats(k, &low, got[0]);
    sp_emulated_wait();
    assert_close_floats("statistics", n_s, got[0], stats[0], t == SP_BF16 ? 2e-2 : 1e-5);
    cpu->merge_logits(cpu, T, 2, (const float *const *)stats, lse, &want);
    k->merge_logits(k, T, 2, (const float *const *)stats, got_lse, &loss);
    sp_emulated_wait();
    printf("    %s loss %.9f, CPU %.9f\n", sp_dtype_name(t), loss, want);
    assert_true(fabs(loss - want) < 1e-6 * fabs(want));
    assert_close_floats("lse", (size_t)T, got_lse, lse, 1e-6);
    cpu->merge_stats(cpu, T, 2, (const float *const *)stats, merged);
    k->merge_stats(k, T, 2, (const float *const *)stats, got[0]);
    sp_emulated_wait();
    assert_close_floats("merged", n_s, got[0], merged, 1e-6);
    cpu->logits_bwd(cpu, &head, lse, false, dx, want_dw);
    k->logits_bwd(k, &low, lse, rows >= T, tdx, got_dw);
    sp_emulated_wait();
    assert_typed("dx =", t, n_x, tdx, dx, tolerance);
    assert_close_floats("dw +=", n_w, got_dw, want_dw, tolerance);
}

TEST(vocabulary)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        vocabulary(t, head_of(7, 10, 37, 7), 0);
        vocabulary(t, head_of(7, 10, 40, 3), 0);
        vocabulary(t, head_of(5, 10, 1, 2), 1);
        vocabulary(t, head_of(13, 24, 1003, 9), 0);
    }
}

TEST(large_logits)
{
    head_check_large(sp_emulated_backend(SP_F32), sp_emulated_wait);
}

TEST(nan)
{
    head_check_nan(sp_emulated_backend(SP_F32), sp_emulated_wait);
}
