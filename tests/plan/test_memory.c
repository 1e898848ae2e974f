/* Bytes of a stage computed without running: stash by recompute mode, peaks, partition, limits. */
#include "policies/common.h"
#include "policies/families/activations.h"
#include "plan/memory.h"
#include <stdlib.h>
#include "policies/families/families.h"

static struct sp_shape shape_of(enum sp_arch arch, int layers, int hidden, int heads, int kv_heads,
                                int mlp, int batch, int seq)
{
    struct sp_model m = {.name = "test",
                         .arch = arch,
                         .layers = layers,
                         .hidden = hidden,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .head_dim = hidden / heads,
                         .mlp = mlp,
                         .vocab = 97,
                         .positions = 1024,
                         .tied = arch == SP_ARCH_GPT2,
                         .norm_eps = 1e-5f};
    struct sp_shape sh;

    sp_shape_init(&sh, &m, batch, seq, 1);
    sp_shape_cut(&sh, 0, 16);
    return sh;
}

/* ---- stash ------------------------------------------------------------------------------ */

TEST(test_stash_gpt)
{
    static const int sizes[][3] = {{64, 4, 3}, {96, 3, 7}, {128, 8, 1}};

    for (size_t i = 0; i < 3; i++) {
        int h = sizes[i][0], a = sizes[i][1], b = sizes[i][2], s = 33;
        struct sp_shape sh = shape_of(SP_ARCH_GPT2, 12, h, a, a, 4 * h, b, s);
        int64_t bs = (int64_t)b * s, bsh = bs * h, stats = 4 * bs, lse = bs * a;

        for (int layers = 1; layers <= 7; layers++) {
            assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_NONE, 1, layers, false),
                             4 * layers * (16 * bsh + stats + lse));
            /* without n1 and n2 (2 bsh) and g (4 bsh) */
            assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_SELECTIVE, 1, layers, false),
                             4 * layers * (10 * bsh + stats + lse));
            assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_NO_ATTENTION, 1, layers, false),
                             4 * layers * (2 * bsh + lse));
            for (int every = 1; every <= 9; every++)
                assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_FULL, every, layers, false),
                                 4 * ((layers + every - 1) / every) * bsh);
            for (int r = 0; r < 4; r++)
                assert_int_equal(sp_stash_bytes(&sh, (enum sp_recompute)r, 1, layers, true) -
                                     sp_stash_bytes(&sh, (enum sp_recompute)r, 1, layers, false),
                                 4 * bsh);
        }
    }
}

/* Statistics are floats: they lie where floats must, however odd the sizes. */
TEST(test_stash_aligned)
{
    for (int h = 5; h <= 8; h++)
        for (int rows = 3; rows <= 6; rows++)
            for (int keeps = 0; keeps < 2; keeps++) {
                struct sp_shape sh = shape_of(SP_ARCH_GPT2, 1, h, 1, 1, 7, 1, rows);
                float *base = calloc(4096, 1);
                struct sp_pre_saved pre;
                struct sp_post_saved post;
                char *end;

                sh.dtype = SP_BF16;
                assert_non_null(base);
                end = (char *)base + 2 * sp_shape_post_saved(&sh, keeps);
                pre = sp_shape_pre_view(&sh, keeps, base);
                post = sp_shape_post_view(&sh, keeps, base);
                assert_true((uintptr_t)pre.stats % 4 == 0 && (uintptr_t)post.stats % 4 == 0);
                assert_true((char *)(post.stats + 2 * rows) <= end && (char *)post.r < end);
                post = sp_shape_residual_view(&sh, base);
                end = (char *)base + 2 * sp_shape_residual_saved(&sh);
                assert_true((uintptr_t)post.stats % 4 == 0);
                assert_true((char *)post.r == (char *)(post.stats + 2 * rows));
                assert_true((char *)post.r + 2 * rows * h == end);
                free(base);
            }
}

/* Llama: q of a*d, keys and values of 2 g d, u of 2f, one f. */
TEST(test_stash_llama)
{
    struct sp_shape sh = shape_of(SP_ARCH_LLAMA, 4, 96, 6, 2, 131, 2, 19);
    int64_t bs = 38, h = 96, kv = 2 * 2 * 16, f = 131, a = 6;

    assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_NONE, 1, 1, false),
                     4 * bs * ((h + h + kv + h + a) + (2 + h) + (h + 2 + 2 * f + h + f)));
    assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_SELECTIVE, 1, 1, false),
                     4 * bs * ((h + h + kv + h + a) + 2 + (h + 2 + 2 * f)));
    assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_NO_ATTENTION, 1, 1, false),
                     4 * bs * (2 * h + a));
}

/* ---- partition -------------------------------------------------------------------------- */

TEST(test_partition)
{
    for (int layers = 1; layers <= 97; layers++)
        for (int parts = 1; parts <= layers; parts++) {
            int next = 0, least = layers, most = 0;

            for (int g = 0; g < parts; g++) {
                int first, count;

                sp_partition(layers, parts, g, &first, &count);
                assert_int_equal(first, next);
                next += count;
                assert_true(count <= (g ? most : count)); /* the first ones are not smaller */
                most = g ? most : count;
                least = count < least ? count : least;
            }
            assert_int_equal(next, layers);
            assert_true(most - least <= 1 && least >= 1);
        }
}

TEST(test_chunk_layers)
{
    for (int p = 1; p <= 5; p++)
        for (int v = 1; v <= 4; v++)
            for (int layers = p * v; layers <= p * v + 7; layers++) {
                struct sp_plan plan = {.layout = {.stages = p, .chunks = v},
                                       .family = sp_family_find("layerwise")};
                int seen[64] = {0};

                for (int s = 0; s < p; s++)
                    for (int c = 0; c < v; c++) {
                        int first, count;

                        sp_chunk_layers(&plan, layers, s, c, &first, &count);
                        for (int l = first; l < first + count; l++)
                            seen[l]++;
                    }
                for (int l = 0; l < layers; l++)
                    assert_int_equal(seen[l], 1);
            }
}

/* ---- peaks ------------------------------------------------------------------------------ */

static int64_t held(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct sp_op f = {.pass = SP_F};
    int64_t one = sp_stash_of_op(plan, sh, SP_RECOMPUTE_NONE, 1, stage, &f);
    int64_t peak = sp_stash_peak(plan, sh, SP_RECOMPUTE_NONE, 1, stage);

    assert_int_equal(peak % one, 0);
    return peak / one;
}

TEST(test_peaks)
{
    int cases = 0;

    for (int p = 1; p <= 9; p++)
        for (int m = 1; m <= 17; m += m < 10 ? 1 : 3) {
            struct sp_shape sh = shape_of(SP_ARCH_GPT2, 2 * p + 1, 64, 4, 4, 256, 1, 8);
            struct sp_plan plan;

            make_plan("1f1b", p, m, &plan);
            for (int i = 0; i < p; i++)
                assert_int_equal(held(&plan, &sh, i), p - i < m ? p - i : m);
            sp_plan_destroy(&plan);
            make_plan("gpipe", p, m, &plan);
            for (int i = 0; i < p; i++)
                assert_int_equal(held(&plan, &sh, i), m);
            sp_plan_destroy(&plan);
            make_plan("naive", p, m, &plan);
            for (int i = 0; i < p; i++)
                assert_int_equal(held(&plan, &sh, i), 1);
            sp_plan_destroy(&plan);
            cases += 3 * p;
        }
    printf("[          ] %d stages: min(p - i, m), m and 1 micro-batches\n", cases);
}

/* The tensors that a separate W reads stay alive until it runs, except the head's input (bsh). A B
 * without a W frees them at once. */
TEST(test_peak_of_split)
{
    static const char *const lines[] = {"F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 W0.0 W2.0"};
    struct sp_shape sh = shape_of(SP_ARCH_GPT2, 3, 64, 4, 4, 256, 1, 8);
    struct sp_op f = {.pass = SP_F};
    struct sp_plan plan;

    write_plan(layout(1, 3), lines, &plan);
    assert_int_equal(sp_stash_peak(&plan, &sh, SP_RECOMPUTE_NONE, 1, 0),
                     2 * sp_stash_of_op(&plan, &sh, SP_RECOMPUTE_NONE, 1, 0, &f) - 4 * 8 * 64);
    sp_plan_destroy(&plan);
}

/* ---- limits ----------------------------------------------------------------------------- */

static double needed(const char *text)
{
    const char *at = strstr(text, " needs ");

    assert_non_null(at);
    return strtod(at + 7, NULL);
}

TEST(test_limits)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "naive"};
    int cases = 0;

    for (size_t k = 0; k < 3; k++)
        for (int p = 1; p <= 4; p++)
            for (int r = 0; r < 4; r++) {
                struct sp_shape sh = shape_of(p % 2 ? SP_ARCH_GPT2 : SP_ARCH_LLAMA, 7, 96, 6,
                                              p % 2 ? 6 : 2, 333, 2, 29);
                enum sp_recompute mode = (enum sp_recompute)r;
                struct sp_memory worst = {0}, stage[4];
                struct sp_plan plan;
                struct capture said;
                double mib;
                int ret;

                make_plan(schedules[k], p, 5, &plan);
                sp_memory_of_plan(&plan, &sh, mode, 1, stage);
                for (int s = 0; s < p; s++)
                    if (sp_memory_sum(&stage[s]) > sp_memory_sum(&worst))
                        worst = stage[s];
                assert_int_equal(sp_memory_check(&plan, &sh, mode, 1, 0), 0);
                assert_int_equal(
                    sp_memory_check(&plan, &sh, mode, 1, (uint64_t)sp_memory_sum(&worst)), 0);
                ret = CAPTURED(&said, sp_memory_check(&plan, &sh, mode, 1,
                                                      (uint64_t)sp_memory_sum(&worst) - 1));
                assert_int_equal(ret, -EINVAL);
                if (strncmp(said.text, "starpipe: memory limit ", 23) ||
                    !!strstr(said.text, "try --recompute") != (mode == SP_RECOMPUTE_NONE))
                    fail_msg("said: %s", said.text);
                mib = needed(said.text);
                assert_true(mib * 1048576 < 1.02 * (double)sp_memory_sum(&worst));
                assert_int_equal(
                    sp_memory_check(&plan, &sh, mode, 1, (uint64_t)(mib * 1048576) + 1), 0);
                sp_plan_destroy(&plan);
                cases++;
            }
    printf("[          ] %d limits refused a byte below, the amount named accepted\n", cases);
}

/* States: 16 bytes a parameter, summed over stages, tied tables once more. */
TEST(test_states)
{
    for (int p = 1; p <= 5; p++) {
        struct sp_shape sh = shape_of(SP_ARCH_GPT2, 5, 64, 4, 4, 256, 1, 8);
        struct sp_plan plan;
        int64_t sum = 0, layer = 0, tables = 0;

        make_plan("1f1b", p, 3, &plan);
        for (int s = 0; s < p; s++)
            sum += sp_memory_states(&plan, &sh, s);
        for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
            int64_t n = (int64_t)sp_block_elements(&sh.model, (enum sp_block_kind)kind);

            if (kind == SP_BLOCK_NORM1 || kind == SP_BLOCK_QKV || kind == SP_BLOCK_POST)
                layer += n;
            else
                tables += n * (kind == SP_BLOCK_TOKENS && p > 1 ? 2 : 1);
        }
        assert_int_equal(sum, 16 * (5 * layer + tables));
        sp_plan_destroy(&plan);
    }
}

/* Two turns of a step's inputs on the first stage and of its targets on the last: 8 bytes a token each. */
TEST(test_tokens)
{
    for (int p = 1; p <= 4; p++)
        for (int b = 1; b <= 3; b += 2) {
            struct sp_shape sh = shape_of(SP_ARCH_GPT2, 5, 64, 4, 4, 256, b, 8);
            struct sp_memory less[4], more[4];
            struct sp_plan few, many;

            make_plan("1f1b", p, 16, &few); /* more than enough micro-batches to fill buffers */
            make_plan("1f1b", p, 64, &many);
            sp_memory_of_plan(&few, &sh, SP_RECOMPUTE_NONE, 1, less);
            sp_memory_of_plan(&many, &sh, SP_RECOMPUTE_NONE, 1, more);
            for (int s = 0; s < p; s++)
                assert_int_equal(more[s].workspace - less[s].workspace,
                                 48 * 8 * b * 8 * ((s == 0) + (s == p - 1)));
            sp_plan_destroy(&few);
            sp_plan_destroy(&many);
        }
}

/* Sizes past 32 bits are summed right, and rows past an int refused. */
TEST(test_large)
{
    struct sp_shape sh = shape_of(SP_ARCH_GPT2, 80, 8192, 64, 64, 32768, 1, 1 << 20);
    struct sp_plan plan;
    struct capture said;

    assert_int_equal(sp_stash_bytes(&sh, SP_RECOMPUTE_NO_ATTENTION, 1, 80, false),
                     4ll * 80 * ((2ll << 20) * 8192 + (64ll << 20)));
    make_plan("1f1b", 1, 1, &plan);
    assert_int_equal(sp_memory_check(&plan, &sh, SP_RECOMPUTE_NONE, 1, 0), 0);
    sh = shape_of(SP_ARCH_GPT2, 80, 8192, 64, 64, 32768, 4096, 1 << 20);
    assert_says(&said, sp_memory_check(&plan, &sh, SP_RECOMPUTE_NONE, 1, 0), -EINVAL,
                "4096 sequences of 1048576 tokens", "many rows");
    sp_plan_destroy(&plan);
}
