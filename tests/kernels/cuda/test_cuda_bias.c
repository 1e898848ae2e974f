/* A bias added to rows, on the emulated device. */
#include "cuda_test.h"
#include "kernels/cuda/pointwise/epilogues.h"

static void add_bias(enum sp_dtype t, int T, int n, int ldy)
{
    size_t all = (size_t)T * (size_t)ldy;
    float *b = new_random((size_t)n, 1), *y = new_random(all, 2);
    void *tb = new_typed(t, (size_t)n, b), *ty = new_typed(t, all, y);

    for (int i = 0; i < T; i++)
        for (int j = 0; j < n; j++)
            y[i * ldy + j] += b[j];
    sp_cuda_add_bias(sp_emulated_backend(t), T, n, tb, ty, ldy);
    sp_emulated_wait();
    assert_typed("add_bias", t, all, ty, y, BOTH);
}

TEST(add_bias)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        add_bias((enum sp_dtype)t, 1, 1, 1);
        add_bias((enum sp_dtype)t, 7, 33, 33);
        add_bias((enum sp_dtype)t, 19, 40, 47);
        add_bias((enum sp_dtype)t, 65535 * 8 + 3, 1, 1);
    }
}
