/*
 * Shared by the .cu files: launching, the element types, access to 16 bytes at a time, and sums
 * over warps and rows.
 *
 * A function call queues a kernel, and the launch gives it its shared memory, so that the sources
 * are C++ to any compiler: tests/kernels/cuda runs them on the CPU, thread by thread.
 */
#ifndef SP_CUDA_LAUNCH_H
#define SP_CUDA_LAUNCH_H

#include "kernels/cuda/device/device.h"
#include <math.h>
#include <stdint.h>

#define SP_DEVICE static __device__ __forceinline__
#define SP_KERNEL static __global__

enum { SP_WARP = 32, SP_BLOCK = 256 /* threads, unless a kernel needs another number */ };

/* ---- elements ---------------------------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};

/* Elements in one access of 16 bytes. */
template <typename T> struct sp_wide {
    enum { N = 16 / sizeof(T) };
};

SP_DEVICE float sp_value(float x)
{
    return x;
}

SP_DEVICE float sp_value(bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

/* Two floats rounded as sp_bf16 does, `low` in the lower half. */
SP_DEVICE unsigned sp_bf16_pair(float low, float high)
{
#ifdef __CUDA_ARCH__
    unsigned pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (unsigned)sp_bf16(high) << 16 | sp_bf16(low);
#endif
}

SP_DEVICE void sp_put(float *p, float x)
{
    *p = x;
}

SP_DEVICE void sp_put(bf16 *p, float x)
{
    p->bits = (uint16_t)sp_bf16_pair(x, 0.0f);
}

/* x[0..V-1] = V elements at p. V is 1, or V elements fill accesses of 16 bytes, to which p is
 * aligned. */
template <int V> SP_DEVICE void sp_load(const float *p, float *x)
{
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 v = *(const float4 *)(p + i);

            x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
        }
    } else {
        static_assert(V == 1, "1 or whole accesses");
        x[0] = *p;
    }
}

SP_DEVICE void sp_unpack(unsigned pair, float *x)
{
    x[0] = __uint_as_float(pair << 16);
    x[1] = __uint_as_float(pair & 0xffff0000u);
}

template <int V> SP_DEVICE void sp_load(const bf16 *p, float *x)
{
    if constexpr (V == 8) {
        uint4 v = *(const uint4 *)p;

        sp_unpack(v.x, x);
        sp_unpack(v.y, x + 2);
        sp_unpack(v.z, x + 4);
        sp_unpack(v.w, x + 6);
    } else {
        static_assert(V == 1, "1 or one access");
        x[0] = sp_value(*p);
    }
}

template <int V> SP_DEVICE void sp_store(float *p, const float *x)
{
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4)
            *(float4 *)(p + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    } else {
        static_assert(V == 1, "1 or whole accesses");
        *p = x[0];
    }
}

template <int V> SP_DEVICE void sp_store(bf16 *p, const float *x)
{
    if constexpr (V == 8) {
        uint4 v;

        v.x = sp_bf16_pair(x[0], x[1]);
        v.y = sp_bf16_pair(x[2], x[3]);
        v.z = sp_bf16_pair(x[4], x[5]);
        v.w = sp_bf16_pair(x[6], x[7]);
        *(uint4 *)p = v;
    } else {
        static_assert(V == 1, "1 or one access");
        sp_put(p, x[0]);
    }
}

/* True if p, and all addresses that are a multiple of n elements further, allow accesses of 16
 * bytes. */
template <typename T> static inline bool sp_is_wide(const T *p, size_t n)
{
    return ((uintptr_t)p | n * sizeof(T)) % 16 == 0; /* true for NULL */
}

/* ---- arithmetic that is exact enough for an element type -------------------------------------
 * Rounding to bf16 hides the error of the fast functions, 2e-7, and arithmetic must keep up with
 * the memory: at 4 bytes an element there is time for 20 to 30 instructions. */

template <typename T> SP_DEVICE float sp_exp(float x)
{
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

/* x / y for |y| below 1e37. */
template <typename T> SP_DEVICE float sp_ratio(float x, float y)
{
    return sizeof(T) == 2 ? __fdividef(x, y) : x / y;
}

/* ---- sums in one order, whatever the scheduling ---------------------------------------------- */

/* Sum over the `lanes` lanes, a power of two, with the same lane / lanes; each gets the same
 * bits. */
SP_DEVICE float sp_lanes_sum(float x, int lanes)
{
    for (int with = lanes / 2; with; with /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, with);
    return x;
}

SP_DEVICE float sp_lanes_max(float x, int lanes)
{
    for (int with = lanes / 2; with; with /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, with));
    return x;
}

/* The block's shared memory, aligned to 16 bytes. */
template <typename T> SP_DEVICE T *sp_shared(void)
{
    extern __shared__ __align__(16) unsigned char sp_shared_memory[];

    return (T *)sp_shared_memory;
}

/*
 * x and y become their sums over the threads of one threadIdx.y, the same bits in each. If that is
 * more than a warp, these threads must be the whole block (blockDim.y == 1), and need shared
 * memory: 2 * SP_WARP floats.
 */
SP_DEVICE void sp_row_sums(float *x, float *y, float *shared)
{
    int warps = (int)blockDim.x / SP_WARP;

    *x = sp_lanes_sum(*x, SP_WARP);
    *y = sp_lanes_sum(*y, SP_WARP);
    if (warps == 1)
        return;
    __syncthreads(); /* some threads may still read the last sums */
    if (threadIdx.x % SP_WARP == 0) {
        shared[threadIdx.x / SP_WARP] = *x;
        shared[SP_WARP + threadIdx.x / SP_WARP] = *y;
    }
    __syncthreads();
    *x = *y = 0;
    for (int w = 0; w < warps; w++) {
        *x += shared[w];
        *y += shared[SP_WARP + w];
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Blocks for n elements, `each` a block; the most a grid can have is far above what memory can
 * hold. */
static inline unsigned sp_blocks(size_t n, size_t each)
{
    return (unsigned)((n + each - 1) / each);
}

static inline unsigned sp_at_most(unsigned n, unsigned most)
{
    return n < most ? n : most;
}

/*
 * Threads that share the accesses of a row, whole warps, SP_BLOCK at most. If a row needs more,
 * `pieces` blocks share it; else a block takes `rows` rows.
 */
struct sp_row_split {
    unsigned threads, pieces, rows;
};

static inline struct sp_row_split sp_split_row(size_t accesses)
{
    struct sp_row_split s;

    s.threads = sp_at_most(sp_blocks(accesses, SP_WARP) * SP_WARP, SP_BLOCK);
    s.pieces = sp_blocks(accesses, s.threads);
    s.rows = SP_BLOCK / s.threads;
    return s;
}

/* Queues a kernel on the backend's stream; without blocks it does nothing. Ends the run if it
 * cannot be queued. */
template <typename... P, typename... A>
static void sp_launch(const struct sp_backend *k, const char *name, void (*kernel)(P...), dim3 grid,
                      dim3 block, size_t shared, A... arguments)
{
    cudaLaunchConfig_t config = {};

    if (!grid.x || !grid.y || !grid.z)
        return;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = k->cuda->stream;
    if (shared > 48 << 10) /* the limit unless a kernel asks for more */
        sp_cuda_must(cudaFuncSetAttribute((const void *)kernel,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                     name);
    sp_cuda_must(cudaLaunchKernelEx(&config, kernel, P(arguments)...), name);
}

/*
 * Queues a pass over n elements of arrays. If these are aligned (`wide`), the kernel `wide_kernel`
 * takes N elements an access, and `rest` takes what is left one by one; otherwise `rest` takes all.
 * Before the given arguments both get the first element and the number of accesses; a block does
 * `each` of them.
 */
template <int N, typename... P, typename... A>
static void sp_launch_over(const struct sp_backend *k, const char *name, size_t n, bool wide,
                           size_t each, void (*wide_kernel)(P...), void (*rest)(P...),
                           A... arguments)
{
    size_t accesses = wide ? n / N : 0, done = accesses * N;

    sp_launch(k, name, wide_kernel, sp_blocks(accesses, each), SP_BLOCK, 0, (size_t)0, accesses,
              arguments...);
    sp_launch(k, name, rest, sp_blocks(n - done, each), SP_BLOCK, 0, done, n - done, arguments...);
}

/* For such a kernel with an access a thread: the first element of this thread's. False: there is
 * none. */
template <int V> SP_DEVICE bool sp_own_access(size_t first, size_t accesses, size_t *at)
{
    size_t access = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    *at = first + access * V;
    return access < accesses;
}

#endif
