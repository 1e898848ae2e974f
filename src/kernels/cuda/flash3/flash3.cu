// FlashAttention-3's parameters for our attention: dense, all sequences of one length.
#include "kernels/cuda/flash3/flash3.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flash3/kernels.h"
#include <climits>
#include <cstdint>

namespace
{

constexpr size_t ALIGNMENT = 256;

template <typename T> T rounded(T n, T to)
{
    return (n + to - 1) / to * to;
}

// Offsets of the backward's arrays in its workspace. Arrays behind `cleared` must be 0 at first.
struct layout {
    int q_len, kv_len; // in whole tiles
    size_t sums, lse2, dq, dq_semaphore, cleared, dk, dv, dk_semaphore, dv_semaphore, end;
};

layout layout_of(const sp_fused_shape &s)
{
    const int queries = flash3::bwd_queries(s.head_dim, !s.full), keys = flash3::bwd_keys;
    size_t heads = size_t(s.batch) * s.heads, kv_heads = size_t(s.batch) * s.kv_heads, end = 0;
    bool grouped = s.heads != s.kv_heads;
    layout at = {};
    auto take = [&](size_t words) {
        size_t begin = end;

        end = rounded(end + 4 * words, ALIGNMENT);
        return begin;
    };

    at.q_len = rounded(s.q_len, queries);
    at.kv_len = rounded(s.kv_len, keys);
    at.sums = take(heads * at.q_len);
    at.lse2 = take(heads * at.q_len);
    at.dq = take(heads * at.q_len * s.head_dim);
    at.dq_semaphore = take(heads * (at.q_len / queries));
    at.cleared = end;
    if (grouped) {
        at.dk = take(kv_heads * at.kv_len * s.head_dim);
        at.dv = take(kv_heads * at.kv_len * s.head_dim);
        at.dk_semaphore = take(kv_heads * (at.kv_len / keys));
        at.dv_semaphore = take(kv_heads * (at.kv_len / keys));
    }
    at.end = end;
    return at;
}

// The kernels count elements of a sequence in an int.
bool countable(const sp_fused_shape &s)
{
    auto elements = [&](int len, int heads) { return (int64_t(len) + 128) * s.head_dim * heads; };

    return elements(s.q_len, s.heads) <= INT_MAX && elements(s.kv_len, s.kv_heads) <= INT_MAX;
}

// TMA needs rows of whole 16 bytes.
bool computed(const sp_fused_shape &s)
{
    return (s.head_dim == 64 || s.head_dim == 128) && s.heads % s.kv_heads == 0 && countable(s) &&
           s.q_row % 8 == 0 && s.kv_row % 8 == 0 && s.dkv_row % 8 == 0;
}

void describe(Flash_fwd_params &p, const sp_cuda *cuda, const sp_fused_shape &s,
              const sp_fused_tensors &t)
{
    p.is_bf16 = true;
    p.is_causal = !s.full;
    p.arch = HOPPER;
    p.num_sm = cuda->multiprocessors;
    p.q_ptr = const_cast<void *>(t.q);
    p.k_ptr = const_cast<void *>(t.k);
    p.v_ptr = const_cast<void *>(t.v);
    p.o_ptr = t.o;
    p.softmax_lse_ptr = t.lse;
    p.q_row_stride = p.o_row_stride = s.q_row;
    p.k_row_stride = p.v_row_stride = s.kv_row;
    p.q_batch_stride = p.o_batch_stride = int64_t(s.q_rows) * s.q_row;
    p.k_batch_stride = p.v_batch_stride = int64_t(s.kv_rows) * s.kv_row;
    p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = s.head_dim;
    p.v_dim_stride = 1;
    p.b = p.b_k = s.batch;
    p.h = s.heads;
    p.h_k = s.kv_heads;
    p.seqlen_q = s.q_len;
    p.seqlen_k = s.kv_len;
    p.d = p.d_rounded = p.dv = p.dv_rounded = s.head_dim;
    p.scale_softmax = s.scale;
    // not used: dropout, windows, pages, splits
    p.p_dropout = p.rp_dropout = 1;
    p.p_dropout_in_uint8_t = 255;
    p.window_size_left = s.kv_len - 1;
    p.window_size_right = s.full ? s.q_len - 1 : 0;
    p.page_size = 1;
    p.num_splits = 1;
    p.varlen_sort_batches = true;
    p.head_swizzle = true;
}

void must(cudaError_t error)
{
    if (error != cudaSuccess)
        throw flash3::refusal{cudaGetErrorString(error)};
}

template <int D> void run_forward(Flash_fwd_params &p, cudaStream_t stream)
{
    (p.is_causal ? flash3::forward<D, true> : flash3::forward<D, false>)(p, stream);
}

void forward(const sp_cuda *cuda, const sp_fused_shape &s, const sp_fused_tensors &t,
             void *workspace)
{
    Flash_fwd_params p = {};

    describe(p, cuda, s, t);
    p.seqlen_q_rounded = rounded(s.q_len, 128);
    p.seqlen_k_rounded = rounded(s.kv_len, 128);
    // blocks take their next tile from this counter
    must(cudaMemsetAsync(workspace, 0, sizeof(int), cuda->stream));
    p.tile_count_semaphore = static_cast<int *>(workspace);
    (s.head_dim == 64 ? run_forward<64> : run_forward<128>)(p, cuda->stream);
}

// Without a mask only the deterministic kernels are built.
template <int D> void run_backward(Flash_bwd_params &p, bool grouped, cudaStream_t stream)
{
    if (!p.is_causal)
        (grouped ? flash3::backward<D, false, true, true>
                 : flash3::backward<D, false, true, false>)(p, stream);
    else if (p.deterministic)
        (grouped ? flash3::backward<D, true, true, true>
                 : flash3::backward<D, true, true, false>)(p, stream);
    else
        (grouped ? flash3::backward<D, true, false, true>
                 : flash3::backward<D, true, false, false>)(p, stream);
}

void backward(const sp_cuda *cuda, const sp_fused_shape &s, const sp_fused_tensors &t,
              void *workspace)
{
    char *base = static_cast<char *>(workspace);
    bool grouped = s.heads != s.kv_heads;
    layout at = layout_of(s);
    Flash_bwd_params p = {};

    describe(p, cuda, s, t);
    p.seqlen_q_rounded = at.q_len;
    p.seqlen_k_rounded = at.kv_len;
    p.deterministic = s.deterministic;
    p.do_ptr = const_cast<void *>(t.d_o);
    p.dq_ptr = t.dq;
    p.dk_ptr = t.dk;
    p.dv_ptr = t.dv;
    p.do_row_stride = p.dq_row_stride = s.q_row;
    p.dk_row_stride = p.dv_row_stride = s.dkv_row;
    p.do_batch_stride = p.dq_batch_stride = p.q_batch_stride;
    p.dk_batch_stride = p.dv_batch_stride = int64_t(s.dkv_rows) * s.dkv_row;
    p.do_head_stride = p.dq_head_stride = p.dk_head_stride = p.dv_head_stride = s.head_dim;
    p.dsoftmax_sum = base + at.sums;
    p.softmax_lse_log2_ptr = base + at.lse2;
    p.dq_accum_ptr = base + at.dq; // the kernels clear it themselves
    p.dq_semaphore = reinterpret_cast<int *>(base + at.dq_semaphore);
    if (grouped) {
        p.dk_accum_ptr = base + at.dk;
        p.dv_accum_ptr = base + at.dv;
        p.dk_semaphore = reinterpret_cast<int *>(base + at.dk_semaphore);
        p.dv_semaphore = reinterpret_cast<int *>(base + at.dv_semaphore);
        must(cudaMemsetAsync(base + at.cleared, 0, at.end - at.cleared, cuda->stream));
    }
    (s.head_dim == 64 ? run_backward<64> : run_backward<128>)(p, grouped, cuda->stream);
}

} // namespace

bool sp_flash3_usable(int device)
{
    int major = 0, minor = 0;

    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return 10 * major + minor == HOPPER;
}

size_t sp_flash3_bytes(const struct sp_fused_shape *shape)
{
    if (!computed(*shape))
        return 0;
    return shape->backward ? layout_of(*shape).end : ALIGNMENT;
}

bool sp_flash3_run(const struct sp_cuda *cuda, const struct sp_fused_shape *shape,
                   const struct sp_fused_tensors *tensors, void *workspace, const char **why)
{
    try {
        (shape->backward ? backward : forward)(cuda, *shape, *tensors, workspace);
        must(cudaPeekAtLastError());
    } catch (const flash3::refusal &refusal) {
        *why = refusal.why;
        return false;
    }
    return true;
}

const char *sp_flash3_about(void)
{
    return "yes, on Hopper";
}
