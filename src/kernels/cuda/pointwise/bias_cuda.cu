/* A bias added to rows: a block has 32 columns of ROWS of them. */
#include "kernels/cuda/pointwise/epilogues.h"
#include "kernels/cuda/device/launch.h"

enum { ROWS = 8 };

template <typename T>
SP_KERNEL void add_bias_kernel(int rows, int n, const T *bias, T *y, size_t ldy)
{
    int c = (int)(blockIdx.x * SP_WARP + threadIdx.x);
    int row = (int)(blockIdx.y * ROWS + threadIdx.y);
    T *at = y + (size_t)row * ldy + c;

    if (c < n && row < rows)
        sp_put(at, sp_value(*at) + sp_value(bias[c]));
}

/* A grid has fewer than 65536 blocks in y. */
template <typename T>
static void add_bias(const struct sp_backend *k, int all, int n, const void *bias, void *y, int ldy)
{
    enum { MOST = 65535 * ROWS };

    for (int t = 0; t < all; t += MOST) {
        int rows = all - t < MOST ? all - t : MOST;

        sp_launch(k, "add_bias", add_bias_kernel<T>,
                  dim3(sp_blocks((size_t)n, SP_WARP), sp_blocks((size_t)rows, ROWS)),
                  dim3(SP_WARP, ROWS), 0, rows, n, (const T *)bias,
                  (T *)y + (size_t)t * (size_t)ldy, (size_t)ldy);
    }
}

extern "C" void sp_cuda_add_bias(const struct sp_backend *k, int T, int n, const void *bias,
                                 void *y, int ldy)
{
    (k->dtype == SP_BF16 ? add_bias<bf16> : add_bias<float>)(k, T, n, bias, y, ldy);
}
