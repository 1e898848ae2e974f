/* Operands of products in fp8, on the emulated device. */
#include "cuda_test.h"
#include "kernels/cuda/gemm/fp8_cuda.h"

static float scale_of(const struct sp_fp8_operand *o)
{
    const uint16_t *x = o->x;
    uint32_t most = 0;

    for (int r = 0; r < o->rows; r++)
        for (int c = 0; c < o->width; c++) {
            uint32_t size = x[r * o->ld + c] & 0x7fffu;

            most = size > most ? size : most;
        }
    return most < 0x7f80 ? sp_power_of_two(sp_fp8_exponent(o->format, most)) : NAN;
}

static void check_codes(struct sp_fp8_operand o, float scale)
{
    int rows = o.transposed ? o.width : o.rows, width = o.transposed ? o.rows : o.width;
    size_t n = (size_t)rows * (size_t)o.ld_to;
    uint8_t *to = test_bytes(n + 1);
    float reciprocal = 0;

    to[n] = 0x55;
    o.to = to;
    o.reciprocal = &reciprocal;
    sp_cuda_fp8_codes(sp_emulated_backend(SP_BF16), &o);
    sp_emulated_wait();
    assert_int_equal(to[n], 0x55);
    assert_true(isnan(scale) ? isnan(reciprocal) : reciprocal * scale == 1);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < o.ld_to; c++) {
            int from = o.transposed ? c * o.ld + r : r * o.ld + c;
            int want = c < width ? sp_fp8_code(o.format,
                                               sp_bf16_value(((const uint16_t *)o.x)[from]) * scale)
                                 : 0;

            if (!isnan(scale) || c < width)
                assert_int_equal(to[r * o.ld_to + c], want);
        }
}

static void check_numbers(struct sp_fp8_operand o, float scale)
{
    size_t n = (size_t)o.rows * (size_t)o.width;
    uint16_t *to = test_bytes((n + 1) * sizeof *to);

    to[n] = 0x5555;
    o.to = to;
    sp_cuda_fp8_numbers(sp_emulated_backend(SP_BF16), &o);
    sp_emulated_wait();
    assert_int_equal(to[n], 0x5555);
    for (size_t i = 0; i < n; i++) {
        size_t from = i / (size_t)o.width * (size_t)o.ld + i % (size_t)o.width;
        float x = sp_bf16_value(((const uint16_t *)o.x)[from]);

        if (isnan(scale))
            assert_true(isnan(sp_bf16_value(to[i])));
        else
            assert_true(sp_bf16_value(to[i]) == sp_fp8_nearest(o.format, x * scale) / scale);
    }
}

/* `bad`: an element of that value is in it. */
static void check(int rows, int width, int ld, int shift, float bad)
{
    size_t n = (size_t)rows * (size_t)ld;
    uint16_t *x = (uint16_t *)test_aligned(256, (n + (size_t)shift) * sizeof *x) + shift;
    unsigned *part = test_bytes(SP_FP8_PARTS * sizeof *part);

    for (size_t i = 0; i < n; i++) /* between rows there is what would be the largest */
        x[i] = i % (size_t)ld < (size_t)width
                   ? sp_bf16(ldexpf(random_at(3, i), (int)(12 * random_at(4, i))))
                   : sp_bf16(1e30f);
    if (bad != 0)
        x[n / 2 / (size_t)ld * (size_t)ld] = sp_bf16(bad);
    for (int f = 0; f < 2; f++)
        for (unsigned order = 0; order < ORDERS; order++) {
            struct sp_fp8_operand o = {.format = (enum sp_fp8_format)f,
                                       .rows = rows,
                                       .width = width,
                                       .ld = ld,
                                       .x = x,
                                       .part = part};
            float scale = scale_of(&o);

            sp_emulated_order(order);
            sp_cuda_fp8_amax(sp_emulated_backend(SP_BF16), &o);
            assert_true(o.parts >= 1 && o.parts <= SP_FP8_PARTS);
            o.ld_to = (width + 15) / 16 * 16;
            check_codes(o, scale);
            o.transposed = true;
            o.ld_to = (rows + 15) / 16 * 16;
            check_codes(o, scale);
            check_numbers(o, scale);
        }
    sp_emulated_order(0);
}

TEST(fp8_operands)
{
    check(1, 1, 1, 0, 0);
    check(3, 16, 16, 0, 0);
    check(33, 40, 40, 0, 0);
    check(33, 40, 48, 0, 0);
    check(129, 65, 65, 0, 0);
    check(130, 72, 80, 8, 0);
    check(17, 24, 24, 1, 0);
    check(300, 200, 200, 0, 0);
    check(33, 40, 40, 0, NAN);
    check(33, 40, 48, 0, INFINITY);
    check(5, 7, 7, 1, -INFINITY);
}
