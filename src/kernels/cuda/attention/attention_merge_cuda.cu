/*
 * Two halves of one attention as one, equations in attention_merge.c. Floor: both read, one written.
 *
 * A block has a row of queries: first what each head's halves weigh, then its elements.
 */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/launch.h"

template <typename T, int V>
SP_KERNEL void merge_kernel(int q_len, int heads, int d, const T *part, const float *part_lse,
                            float *o, float *lse)
{
    float *mine = sp_shared<float>(), *theirs = mine + heads;
    int row = (int)blockIdx.x, width = heads * d;

    for (int head = (int)threadIdx.x; head < heads; head += (int)blockDim.x) {
        size_t stat = ((size_t)(row / q_len) * (size_t)heads + (size_t)head) * (size_t)q_len +
                      (size_t)(row % q_len);
        float l1 = lse[stat], l2 = part_lse[stat], most = fmaxf(l1, l2);
        float l = most + logf(expf(l1 - most) + expf(l2 - most));

        mine[head] = expf(l1 - l);
        theirs[head] = expf(l2 - l);
        lse[stat] = l;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x * V; i < width; i += (int)blockDim.x * V) {
        size_t at = (size_t)row * (size_t)width + (size_t)i;
        float x[V], y[V];

        sp_load<V>(o + at, x);
        sp_load<V>(part + at, y);
        for (int v = 0; v < V; v++)
            x[v] = x[v] * mine[(i + v) / d] + y[v] * theirs[(i + v) / d];
        sp_store<V>(o + at, x);
    }
}

template <typename T>
static void merge(const struct sp_backend *k, const struct sp_attention *at, const void *part,
                  const float *part_lse, float *o, float *lse)
{
    size_t width = (size_t)at->heads * (size_t)at->head_dim;
    bool wide =
        width % sp_wide<T>::N == 0 && sp_is_wide(o, width) && sp_is_wide((const T *)part, width);

    sp_launch(k, "attention_merge", wide ? merge_kernel<T, sp_wide<T>::N> : merge_kernel<T, 1>,
              (unsigned)(at->batch * at->q_len), SP_BLOCK, 2 * (size_t)at->heads * sizeof(float),
              at->q_len, at->heads, at->head_dim, (const T *)part, part_lse, o, lse);
}

extern "C" void sp_cuda_attention_merge_fill(struct sp_backend *backend)
{
    backend->attention_merge = backend->dtype == SP_BF16 ? merge<bf16> : merge<float>;
}
