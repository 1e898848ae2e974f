// One kernel of FlashAttention-3, in bf16. Each compiles for a minute, as its own object:
//   -DHEAD_DIM=64|128 -DCAUSAL=0|1, for the forward; with -DDETERMINISTIC=0|1 -DGROUPED=0|1 a backward.
#include "kernels/cuda/flash3/kernels.h"

// The checks of FlashAttention end the process. Their header is included here, before they are
// redefined, so that its include guard keeps it from coming back.
#include "cuda_check.h"
#undef CHECK_CUDA
#undef CHECK_CUTLASS
#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess)                                                                 \
            throw ::flash3::refusal{cudaGetErrorString(error_)};                                   \
    } while (0)
#define CHECK_CUTLASS(call)                                                                        \
    do {                                                                                           \
        cutlass::Status status_ = (call);                                                          \
        if (status_ != cutlass::Status::kSuccess)                                                  \
            throw ::flash3::refusal{cutlassGetStatusString(status_)};                              \
    } while (0)

#ifndef DETERMINISTIC
#include "flash_fwd_launch_template.h"

// The last ten arguments: causal or not; not local, no soft cap, all sequences of one length, no pages of
// keys, no keys appended, no query beside q, heads not packed, not split, V as it is. Clusters of
// one block.
template <> void flash3::forward<HEAD_DIM, CAUSAL>(Flash_fwd_params &params, cudaStream_t stream)
{
    using T = cutlass::bfloat16_t;

    run_flash_fwd<HOPPER, HEAD_DIM, HEAD_DIM, 1, T, T, CAUSAL, false, false, false, false, false,
                  false, false, false, false>(params, stream);
}
#else
#if DETERMINISTIC
#include "cutlass/barrier.h"

// Blocks add to dQ in turns. FlashAttention passes the turn on once the addends have been read,
// which does not mean that they have been added: the next block's could come first. Here it waits
// until they are added.
template <>
CUTLASS_DEVICE void
cutlass::GenericBarrier<cutlass::detail::SyncwarpSync>::arrive_inc(void *lock, int thread, int flag,
                                                                   int value)
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    cutlass::detail::SyncwarpSync::sync();
    if (thread == 0)
        red_release(static_cast<int *>(lock) + flag, value);
}
#endif
#include "flash_bwd_launch_template.h"

// As in run_mha_bwd_hdim64 and run_mha_bwd_hdim128 on Hopper. The first four bools: causal or not;
// not local, no soft cap, all sequences of one length. The arguments after Grouped:
// stages of dO and dS; which products are computed transposed (S and dP, dK and dV, dQ); warp
// groups, and how they share the products; V stays in memory.
template <>
void flash3::backward<HEAD_DIM, CAUSAL, DETERMINISTIC, GROUPED>(Flash_bwd_params &params,
                                                                cudaStream_t stream)
{
    run_flash_bwd<HOPPER, HEAD_DIM, flash3::bwd_queries(HEAD_DIM, CAUSAL), flash3::bwd_keys,
                  cutlass::bfloat16_t, CAUSAL, false, false, false, DETERMINISTIC, GROUPED, 2, 2,
                  true, false, !CAUSAL && HEAD_DIM == 128, 2, 1, 2, HEAD_DIM == 64 ? 2 : 1, false>(
        params, stream);
}
#endif
