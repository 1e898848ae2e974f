/* Sums, norms and updates at the end of a step: tasks equal the kernels, bit for bit. */
#include "engine/codelets.h"

TEST(sums)
{
    struct tensor a = random_tensor(1001, 71), b = random_tensor(1001, 72);
    float *ra = copy(&a);
    double sum = 2.5;
    struct tally tally = tally_of(5, sum);
    struct sp_task_context ctx = test_context();

    sp_sumsq_insert(&ctx, a.handle, 0, NULL, tally.handle, false);
    starpu_task_wait_for_all();
    sp_sumsq(a.n, a.at, &sum);
    assert_memory_equal(&tally.at[SP_TALLY_SUMSQ], &sum, sizeof sum);
    assert_true(tally.at[SP_TALLY_LOSS] == 5);

    sp_sum_insert(&ctx, SP_F32, a.handle, b.handle, false);
    starpu_task_wait_for_all();
    sp_add(a.n, b.at, ra);
    assert_same_bits(a.at, ra, a.n, "a + b");
    assert_true(b.at[17] != a.at[17]);
    sp_sum_insert(&ctx, SP_F32, a.handle, b.handle, true);
    starpu_task_wait_for_all();
    assert_same_bits(a.at, b.at, a.n, "both sums");
}

static float *ref_w, *ref_g, *ref_m, *ref_v;

static void update_reference(void *arg, const struct sp_parameter *t)
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

    sp_adamw(&hp, &(struct sp_adamw_arrays){.n = (size_t)t->rows * (size_t)t->cols,
                                            .w = ref_w + at,
                                            .g = ref_g + at,
                                            .m = ref_m + at,
                                            .v = ref_v + at});
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
    }
}

static void check_rounded(struct sp_tensor *low, const float *w, size_t n)
{
    const uint16_t *got;

    got = sp_tensor_acquire(low, SP_READ);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], sp_bf16(w[i]));
    sp_tensor_release(low);
}

static const float *new_g;

/* Matrices stay in a gradient that starts anew, for the next step to overwrite; the rest is 0. */
static void check_stale(void *arg, const struct sp_parameter *t)
{
    size_t n = (size_t)t->rows * (size_t)t->cols;

    (void)arg;
    for (size_t i = 0; i < n; i++)
        assert_true(new_g[t->offset + i] == (sp_matrix_of(t->role) ? ref_g[t->offset + i] : 0));
}

TEST(update)
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

    for (int k = 0; k < 2 * SP_BLOCK_KINDS; k++) {
        enum sp_block_kind kind = (enum sp_block_kind)(k % SP_BLOCK_KINDS);
        bool in_layer = kind == SP_BLOCK_NORM1 || kind == SP_BLOCK_QKV || kind == SP_BLOCK_POST;
        int layer = in_layer ? 0 : -1;
        struct sp_shape sh = shape_of(k >= SP_BLOCK_KINDS, 0, 0);
        struct sp_params params;
        struct tensor w, g, m, v;
        struct sp_tensor *low;
        float *kept;

        if (!sp_block_elements(&sh.model, kind))
            continue;
        assert_int_equal(sp_params_create(&sh.model, &params), 0);
        w = block(&sh, kind, 81), g = block(&sh, kind, 82);
        m = block(&sh, kind, 83), v = block(&sh, kind, 84);
        for (size_t i = 0; i < v.n; i++)
            v.at[i] = fabsf(v.at[i]);
        ref_w = copy(&w), ref_g = copy(&g), ref_m = copy(&m), ref_v = copy(&v);
        low = sp_tensor_make(sp_starpu_sink(), w.n, sizeof(uint16_t), "rounded w");
        sp_round_insert(&ctx, w.handle, SP_BF16, low);
        starpu_task_wait_for_all();
        check_rounded(low, ref_w, w.n);
        sp_update_insert(&ctx, &params, kind, layer, 0, &hp, w.handle, g.handle, m.handle, v.handle,
                         k % 3 ? SP_BF16 : SP_F32, low);
        starpu_task_wait_for_all();
        sp_block_each(&params, kind, layer, update_reference, &hp);
        if (k % 3)
            check_rounded(low, ref_w, w.n);
        sp_tensor_unmake(low);
        assert_same_bits(w.at, ref_w, w.n, "w");
        assert_same_bits(g.at, ref_g, g.n, "g");
        assert_same_bits(m.at, ref_m, m.n, "m");
        assert_same_bits(v.at, ref_v, v.n, "v");

        g = block(&sh, kind, 85), kept = copy(&g), ref_g = copy(&g);
        hp.keeps_gradient = true;
        sp_update_insert(&ctx, &params, kind, layer, 0, &hp, w.handle, g.handle, m.handle, v.handle,
                         SP_F32, NULL);
        hp.keeps_gradient = false;
        starpu_task_wait_for_all();
        sp_block_each(&params, kind, layer, update_reference, &hp);
        assert_same_bits(w.at, ref_w, w.n, "w beside a kept gradient");
        assert_same_bits(g.at, kept, g.n, "a kept gradient");

        hp.restarts = sp_matrices(kind);
        sp_update_insert(&ctx, &params, kind, layer, 0, &hp, w.handle, g.handle, m.handle, v.handle,
                         SP_F32, NULL);
        hp.restarts = 0;
        assert_int_equal(g.handle->stale, sp_matrices(kind));
        starpu_task_wait_for_all();
        new_g = g.at, ref_g = kept;
        sp_block_each(&params, kind, layer, check_stale, NULL);
        sp_clear_insert(&ctx, g.handle);
        assert_int_equal(g.handle->stale, 0);
        starpu_task_wait_for_all();
        check_parts(&params, kind, layer, &hp);
        sp_params_destroy(&params);
    }
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
