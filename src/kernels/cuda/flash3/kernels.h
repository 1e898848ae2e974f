// Between flash3.cu and kernels.cu, which holds one kernel of FlashAttention-3 for each time it is compiled.
#ifndef SP_FLASH3_KERNELS_H
#define SP_FLASH3_KERNELS_H

#include "flash.h" // FlashAttention's: Flash_fwd_params, Flash_bwd_params

enum { HOPPER = 90 }; // ten times the compute capability

namespace flash3
{

// Thrown where FlashAttention would end the process: what CUDA or CUTLASS says.
struct refusal {
    const char *why;
};

// Queries and keys of a tile of the backward: what its workspace is made of. As FlashAttention chooses them on Hopper.
constexpr int bwd_queries(int head_dim, bool causal)
{
    return head_dim == 64 ? 128 : causal ? 64 : 80;
}
constexpr int bwd_keys = 128;

template <int D, bool Causal> void forward(Flash_fwd_params &params, cudaStream_t stream);
// Grouped: query heads share a head of keys, and dK and dV are sums over them.
template <int D, bool Causal, bool Deterministic, bool Grouped>
void backward(Flash_bwd_params &params, cudaStream_t stream);

} // namespace flash3

#endif
