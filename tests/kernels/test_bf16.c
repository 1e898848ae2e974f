/*
 * bf16: the rounding, for every value that can be, and each kernel of the CPU's bf16 table, which
 * must give what the f32 kernel gives of the widened inputs, rounded once: the same bits. Attention on
 * bf16 tiles does not: test_attention_bf16.c.
 */
#include "emulated_bf16.h"
#include "comparison.h"
#include "kernels/cpu/attention/attention_path.h"
#include "kernels/cpu/cpu.h"

static const int sizes[] = {1, 2, 3, 31, 33, 63, 64, 65, 127, 128, 129, 1001, 20011};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static float from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

TEST(rounding)
{
    for (uint32_t b = 0; b < 0x10000; b++) {
        float x = sp_bf16_value((uint16_t)b), next = sp_bf16_value((uint16_t)(b + 1));

        if (isnan(x)) {
            assert_true(isnan(sp_bf16_value(sp_bf16(x))));
            continue;
        }
        assert_int_equal(sp_bf16(x), b);
        if (isinf(x) || (b & 0x7fff) == 0x7f7f)
            continue;
        assert_true(next != x);
        /* half way to the next one: to the even; just before and just after it: to the nearest */
        assert_int_equal(sp_bf16(from_bits(b << 16 | 0x8000)), b + (b & 1));
        assert_int_equal(sp_bf16(from_bits(b << 16 | 0x7fff)), b);
        assert_int_equal(sp_bf16(from_bits(b << 16 | 0x8001)), b + 1);
    }
    assert_int_equal(sp_bf16(from_bits(0x7f7fffff)), 0x7f80); /* beyond the largest: infinite */
    assert_true(isnan(sp_bf16_value(sp_bf16(from_bits(0x7f800001)))));
}

/* Rounded at random: to one of the two next to a value, and so often to the upper one that the mean is right. */
TEST(rounding_at_random)
{
    enum { TIMES = 65536 };
    const uint32_t values[] = {0x3f801234, 0x3f80ffff, 0xbf812345, 0x00012345, 0x477fe001, 0};

    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        uint32_t x = values[k], up = 0, past = x & 0xffff;
        double deviation = sqrt(TIMES * (past / 65536.0) * (1 - past / 65536.0));

        for (uint32_t i = 0; i < TIMES; i++) {
            uint32_t y = sp_bf16_at_random(x, sp_random_bits(99, i)) >> 16;

            assert_true(y == x >> 16 || y == (x >> 16) + 1);
            up += y != x >> 16;
        }
        assert_true(fabs((double)up - past) <= 4 * deviation);
    }
    for (uint32_t b = 0; b < 0x10000; b++) { /* what is a bf16 stays */
        uint32_t y = sp_bf16_at_random(b << 16, 0xffffffff) >> 16;

        assert_true(y == b || (isnan(sp_bf16_value((uint16_t)b)) && y == (b | 0x40)));
    }
    assert_true(isnan(from_bits(sp_bf16_at_random(0x7f800001, 0xffffffff) & 0xffff0000)));
}

/* Through f32; see test_linear_bf16.c for the products that the CPU has. */
TEST(products)
{
    const struct comparison c = compare_rounded(emulated_bf16());

    compare_forward(&c, (struct sp_linear){.T = 13, .in = 24, .out = 40}, 1);
    compare_backward(&c, (struct sp_linear){.T = 13, .in = 24, .out = 40}, 3);
    compare_head(&c, 13, 24, 37, 5);
}

TEST(norms)
{
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    compare_norms(&c, 13, 24);
    for (int s = 0; s < SIZES; s++)
        compare_norms(&c, sizes[s] > 5000 ? 3 : 37, sizes[s]);
}

/* On a path of f32 tiles: the tiles hold the widened values. */
TEST(attention)
{
    static const char *const paths[] = {"avx512", "avx2", "plain"};
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *path = paths[i];

        if (sp_attention_choose(path)) {
            printf("    no %s here\n", path);
            path = "plain";
            assert_int_equal(sp_attention_choose(path), 0);
        }
        assert_string_equal(sp_attention_path(SP_BF16)->name, path);
        compare_attention(&c, (struct sp_attention){.batch = 2,
                                                    .heads = 4,
                                                    .kv_heads = 2,
                                                    .head_dim = 8,
                                                    .scale = 0.35f,
                                                    .q_len = 5,
                                                    .n_kv = 2,
                                                    .kv_len = (const int[]){3, 6}});
    }
    assert_int_equal(sp_attention_choose(NULL), 0);
}

/* Halves of heads of odd size; positions across multiples of 32. */
TEST(rope)
{
    static const int head_sizes[] = {2, 6, 24, 64, 130};
    static const struct sp_rope rope = {.theta = 1e4f};
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    compare_rope(&c, (struct sp_rotation){1, 13, 2, 24, .pos0 = 7, .rope = &rope}, 2, false);
    for (int i = 0; i < 5; i++)
        compare_rope(&c, (struct sp_rotation){2, 71, 3, head_sizes[i], .pos0 = 1000, .rope = &rope},
                     1, i % 2);
}

TEST(mlp)
{
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    compare_mlp(&c, 13, 24);
    for (int s = 0; s < SIZES; s++)
        compare_mlp(&c, sizes[s] > 5000 ? 2 : 3, sizes[s]);
}

TEST(embed)
{
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    compare_embed(&c, (struct sp_embed){.batch = 1, .len = 13, .h = 24, .pos0 = 2}, 37);
    compare_embed(&c, (struct sp_embed){.batch = 2, .len = 9, .h = 24, .pos0 = -4, .here = 3}, 37);
    for (int s = 0; s < SIZES; s++)
        compare_embed(&c, (struct sp_embed){.batch = 2, .len = 21, .h = sizes[s], .pos0 = 2}, 11);
}

TEST(update)
{
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    compare_update(&c, 1001);
}

/* y += x many times over, x far below half a step of y: rounded to the nearest, y would never change. */
TEST(adds_at_random)
{
    enum { N = 4099, TIMES = 1000 };
    float *x = new_random(N, 1), *y = new_random(N, 2);
    const struct sp_backend *lo = sp_cpu_backend(SP_BF16), *hi = sp_cpu_backend(SP_F32);
    double sum = 0, furthest = 0;
    uint16_t *low = test_bytes(N * sizeof *low);

    for (int i = 0; i < N; i++) {
        x[i] = 0x1p-13f;
        low[i] = sp_bf16(1);
    }
    for (uint32_t t = 0; t < TIMES; t++)
        lo->add_at_random(lo, N, sp_random_bits(5, t), x, low);
    for (int i = 0; i < N; i++)
        sum += sp_bf16_value(low[i]) / N;
    /* the deviation of an element is four steps of a bf16, 2^-5, that of the mean 64 times less */
    assert_true(fabs(sum - (1 + TIMES * 0x1p-13)) < 4 * 0x1p-11);
    for (int i = 0; i < N; i++)
        furthest = fmax(furthest, fabs(sp_bf16_value(low[i]) - sum));
    assert_true(furthest > 0x1p-7); /* each for itself */

    lo->add_to_f32(lo, N, low, y);
    memcpy(x, y, N * sizeof *x);
    y = new_random(N, 2);
    for (int i = 0; i < N; i++)
        assert_true(x[i] == y[i] + sp_bf16_value(low[i]));
    hi->add_at_random(hi, N, 5, x, y); /* f32: as it is */
    hi->add_to_f32(hi, N, x, y);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == random_at(2, (size_t)i) + x[i] + x[i]);
}

TEST(finite)
{
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));
    struct tensor x = tensor_filled(&c, 50, 1, false);
    const struct sp_backend *lo = c.backends[TESTED], *hi = c.backends[RIGHT];

    assert_int_equal(lo->first_not_finite(lo, SP_BF16, x.at[TESTED], 50), 50);
    assert_int_equal(hi->first_not_finite(hi, SP_F32, x.at[RIGHT], 50), 50);
    ((uint16_t *)x.at[TESTED])[17] = 0x7f80;
    ((float *)x.at[RIGHT])[18] = NAN;
    assert_int_equal(lo->first_not_finite(lo, SP_BF16, x.at[TESTED], 50), 17);
    assert_int_equal(hi->first_not_finite(hi, SP_F32, x.at[RIGHT], 50), 18);
}
