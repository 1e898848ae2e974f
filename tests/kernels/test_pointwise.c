/*
 * Kernels that stream, of odd sizes and in place of their inputs; rounding, and NaNs. The kernels that a
 * backend has are in test_bf16.c, too.
 */
#include "comparison.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"

static void activation(const struct comparison *c, enum sp_activation kind, size_t n)
{
    struct tensor u = tensor_spread(c, n, 1), on_u = tensor_spread(c, n, 1);
    struct tensor dy = tensor_filled(c, n, 2, false), on_dy = tensor_filled(c, n, 2, false);
    struct tensor y = tensor_empty(c, n, false), du = tensor_empty(c, n, false);

    for (int i = 0; i < SIDES; i++) {
        enum sp_dtype type = c->backends[i]->dtype;

        sp_cpu_activation(sp_cpu_backend(type), kind, n, u.at[i], y.at[i]);
        sp_cpu_activation_bwd(sp_cpu_backend(type), kind, n, u.at[i], dy.at[i], du.at[i]);
        sp_cpu_activation_bwd(sp_cpu_backend(type), kind, n, on_u.at[i], dy.at[i], on_u.at[i]);
        sp_cpu_activation_bwd(sp_cpu_backend(type), kind, n, u.at[i], on_dy.at[i], on_dy.at[i]);
    }
    tensor_check(c, "activation", &y);
    tensor_check(c, "activation backward", &du);
    tensor_check(c, "activation backward on u", &on_u);
    tensor_check(c, "activation backward on dy", &on_dy);
}

TEST(elementwise)
{
    static const size_t sizes[] = {1, 2, 3, 31, 33, 63, 64, 65, 127, 128, 129, 1001, 20011};
    const struct comparison c = compare_rounded(sp_cpu_backend(SP_BF16));

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        struct tensor x = tensor_filled(&c, n, 2, false), y = tensor_filled(&c, n, 3, false);
        struct tensor three = tensor_filled(&c, n, 4, false);

        for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++)
            activation(&c, kind, n);
        for (int i = 0; i < SIDES; i++) {
            enum sp_dtype type = c.backends[i]->dtype;
            const void *parts[] = {x.at[i], y.at[i], x.at[i]};

            sp_cpu_add_parts(sp_cpu_backend(type), n, 3, parts, three.at[i]);
            sp_cpu_add(sp_cpu_backend(type), n, x.at[i], y.at[i]);
        }
        tensor_check(&c, "add", &y);
        tensor_check(&c, "add three", &three); /* rounded once */
    }
}

/* Every upper half, with lower halves below, at and above the middle between two bf16. */
TEST(convert)
{
    const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    const size_t n = 6 * 0x10000;
    uint32_t *x = test_bytes(n * sizeof *x);
    uint16_t *y = test_bytes(n * sizeof *y);
    float *back = new_nan(n);

    for (size_t i = 0; i < n; i++)
        x[i] = (uint32_t)(i / 6) << 16 | lower[i % 6];
    memset(y, 0xff, n * sizeof *y);
    sp_convert(SP_F32, SP_BF16, n, x, y);
    sp_convert(SP_BF16, SP_F32, n, y, back);
    for (size_t i = 0; i < n; i++) {
        float value;

        memcpy(&value, &x[i], sizeof value);
        assert_int_equal(y[i], sp_bf16(value));
        assert_true(isnan(back[i]) == isnan(value));
        assert_true(isnan(value) || back[i] == sp_bf16_value(y[i]));
    }
}

/* A NaN of every bf16 kernel reaches its output, whatever its bits. */
TEST(nan)
{
    const uint16_t nans[] = {0x7f81, 0x7fc0, 0x7fff, 0xff81, 0xffc0, 0xffff};

    for (size_t k = 0; k < sizeof nans / sizeof nans[0]; k++)
        for (int at = 0; at < 5; at++) {
            uint16_t u[5], y[5], dy[5], du[10], wide[10] = {0};
            bool bad[4];

            for (int i = 0; i < 5; i++)
                u[i] = dy[i] = sp_bf16((float)i - 2);
            u[at] = wide[at] = nans[k];
            sp_cpu_activation(sp_cpu_backend(SP_BF16), SP_GELU_TANH, 5, u, y);
            bad[0] = isnan(sp_bf16_value(y[at]));
            sp_cpu_activation_bwd(sp_cpu_backend(SP_BF16), SP_GELU_TANH, 5, u, dy, y);
            bad[1] = isnan(sp_bf16_value(y[at]));
            sp_cpu_gated(sp_cpu_backend(SP_BF16),
                         &(struct sp_gated){.act = SP_SILU, .T = 1, .f = 5}, wide, y);
            bad[2] = isnan(sp_bf16_value(y[at]));
            sp_cpu_gated_bwd(sp_cpu_backend(SP_BF16),
                             &(struct sp_gated){.act = SP_SILU, .T = 1, .f = 5}, wide, dy, du);
            bad[3] = isnan(sp_bf16_value(du[at])) && isnan(sp_bf16_value(du[5 + at]));
            assert_true(bad[0] && bad[1] && bad[2] && bad[3]);
            memcpy(y, dy, sizeof y);
            sp_cpu_add(sp_cpu_backend(SP_BF16), 5, u, y);
            assert_true(isnan(sp_bf16_value(y[at])) && !isnan(sp_bf16_value(y[(at + 1) % 5])));
        }
}
