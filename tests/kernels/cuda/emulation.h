/*
 * CUDA kernels on the CPU, one thread after the other, so that they are tested where there is no
 * device. A kernel is a C++ function; each of its threads is a fiber that runs until it waits, for
 * its block (__syncthreads) or its warp (shuffles, matrix products), and goes on when all it waits
 * for have come. The run ends with one line when they cannot come: a barrier that some threads of
 * the block do not reach, lanes that wait at different lines, a lane asked for its value that is
 * away.
 *
 * Every block starts with shared memory full of NaN, whose end is watched. Launches are queued and
 * run when the stream is waited for, so that what a kernel reads of its caller's memory shows. The
 * order of blocks, warps and lanes is the tests' to choose: results that differ between forward and
 * reverse tell a missing barrier, or sums that depend on the scheduling.
 */
#ifndef SP_TESTS_EMULATION_H
#define SP_TESTS_EMULATION_H

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- the language ---------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;

    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

struct __align__(8) float2
{
    float x, y;
};
struct __align__(16) float4
{
    float x, y, z, w;
};
struct __align__(8) uint2
{
    unsigned x, y;
};
struct __align__(16) uint4
{
    unsigned x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

extern uint3 sp_emulated_thread, sp_emulated_block;
extern dim3 sp_emulated_block_size, sp_emulated_grid_size;

#define threadIdx sp_emulated_thread
#define blockIdx sp_emulated_block
#define blockDim sp_emulated_block_size
#define gridDim sp_emulated_grid_size

/* ---- what threads wait for -------------------------------------------------------------- */

/* Until every thread of the block is here. */
void sp_emulated_barrier(const char *file, int line);

/*
 * Until all lanes of `mask` are here, which must be at the same line for the same purpose; then
 * resolve(mask, slots), once, computes what each finds in its slot.
 */
void sp_emulated_meet(unsigned mask, const char *file, int line, void *slot,
                      void (*resolve)(unsigned mask, void *const *slots));

/* Ends the run: one line, with the block and the thread. */
void sp_emulated_fail(const char *format, ...) __attribute__((format(printf, 1, 2)))
__attribute__((noreturn));

unsigned sp_emulated_lane(void);

template <typename V> struct sp_emulated_shuffle {
    V in, out;
    unsigned from;
};

template <typename V> static void sp_emulated_resolve(unsigned mask, void *const *slots)
{
    for (unsigned lane = 0; lane < 32; lane++) {
        auto *s = (sp_emulated_shuffle<V> *)slots[lane];

        if (!(mask >> lane & 1))
            continue;
        if (!(mask >> s->from & 1))
            sp_emulated_fail("lane %u shuffles with lane %u, which is away", lane, s->from);
        s->out = ((sp_emulated_shuffle<V> *)slots[s->from])->in;
    }
}

template <typename V>
static inline V sp_emulated_exchange(unsigned mask, V x, unsigned from, const char *file, int line)
{
    sp_emulated_shuffle<V> s = {x, x, from};

    sp_emulated_meet(mask, file, line, &s, sp_emulated_resolve<V>);
    return s.out;
}

static inline void sp_emulated_nothing(unsigned, void *const *)
{
}

#define __syncthreads() sp_emulated_barrier(__FILE__, __LINE__)
#define __syncwarp() sp_emulated_meet(0xffffffffu, __FILE__, __LINE__, nullptr, sp_emulated_nothing)
#define __shfl_sync(mask, x, from)                                                                 \
    sp_emulated_exchange(mask, x, (unsigned)(from), __FILE__, __LINE__)
#define __shfl_xor_sync(mask, x, with)                                                             \
    sp_emulated_exchange(mask, x, sp_emulated_lane() ^ (unsigned)(with), __FILE__, __LINE__)
#define __shfl_down_sync(mask, x, by)                                                              \
    sp_emulated_exchange(mask, x,                                                                  \
                         sp_emulated_lane() + (unsigned)(by) < 32                                  \
                             ? sp_emulated_lane() + (unsigned)(by)                                 \
                             : sp_emulated_lane(),                                                 \
                         __FILE__, __LINE__)

/* ---- bits ------------------------------------------------------------------------------ */

static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ---- what a warp does together, mma.h ---------------------------------------------------- */

struct sp_emulated_product {
    float *c;
    const unsigned *a, *b;
};

/* Element k of row i of A is in register k/8*2 + i/8 of lane i%8*4 + k%8/2, in half k%2; element k
 * of column j of B in register k/8 of lane j*4 + k%8/2; element (i,j) of C in register i/8*2 + j%2
 * of lane i%8*4 + j/2. */
static inline void sp_emulated_multiply(unsigned, void *const *slots)
{
    float A[16][16], B[16][8];

    for (unsigned lane = 0; lane < 32; lane++) {
        auto *p = (sp_emulated_product *)slots[lane];

        for (unsigned r = 0; r < 4; r++)
            for (unsigned h = 0; h < 2; h++) {
                unsigned i = r % 2 * 8 + lane / 4, k = r / 2 * 8 + lane % 4 * 2 + h;

                A[i][k] = __uint_as_float(p->a[r] >> h * 16 << 16);
                if (r < 2)
                    B[r * 8 + lane % 4 * 2 + h][lane / 4] =
                        __uint_as_float(p->b[r] >> h * 16 << 16);
            }
    }
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned r = 0; r < 4; r++) {
            float *c = &((sp_emulated_product *)slots[lane])->c[r];

            for (unsigned k = 0; k < 16; k++)
                *c += A[r / 2 * 8 + lane / 4][k] * B[k][lane % 4 * 2 + r % 2];
        }
}

struct sp_emulated_load {
    unsigned *r;
    const uint16_t *row;
    bool transposed;
};

static inline void sp_emulated_blocks(unsigned, void *const *slots)
{
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned block = 0; block < 4; block++) {
            auto *to = (sp_emulated_load *)slots[lane];
            unsigned row = lane / 4, column = lane % 4 * 2, pair[2];

            for (unsigned h = 0; h < 2; h++) {
                auto *from =
                    (sp_emulated_load *)slots[block * 8 + (to->transposed ? column + h : row)];

                pair[h] = from->row[to->transposed ? row : column + h];
            }
            to->r[block] = pair[1] << 16 | pair[0];
        }
}

static inline void sp_emulated_mma(float *c, const unsigned *a, const unsigned *b)
{
    sp_emulated_product p = {c, a, b};

    sp_emulated_meet(0xffffffffu, __FILE__, __LINE__, &p, sp_emulated_multiply);
}

static inline void sp_emulated_ldmatrix(unsigned *r, const void *row, bool transposed)
{
    sp_emulated_load l = {r, (const uint16_t *)row, transposed};

    if ((uintptr_t)row % 16)
        sp_emulated_fail("a row of a block of a matrix is not aligned to 16 bytes");
    sp_emulated_meet(0xffffffffu, __FILE__, __LINE__, &l, sp_emulated_blocks);
}

/* Done when waited for, and not before: `n` bytes and then zeroes, `bytes` in all. A thread must
 * not end before. */
void sp_emulated_copy_async(void *to, const void *from, unsigned n, unsigned bytes);
void sp_emulated_copy_commit(void);
void sp_emulated_copy_wait(unsigned left);

/* ---- arithmetic -------------------------------------------------------------------------- */

/* Macros, as the C library has names like these. */
#define __expf(x) expf(x)
#define __fdividef(x, y) ((x) / (y))
#define sincospif sp_emulated_sincospif

static inline void sp_emulated_sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)sin(3.14159265358979323846 * (double)x);
    *cosine = (float)cos(3.14159265358979323846 * (double)x);
}

/* ---- launches ---------------------------------------------------------------------------- */

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    void *attrs;
    unsigned numAttrs;
};

void sp_emulated_queue(std::function<void()> work);
/* The limits of every device since sm_80 hold: grid, block, shared memory (99 KiB, above 48 if
 * asked). */
cudaError_t sp_emulated_check(const cudaLaunchConfig_t *config, const void *kernel);
void sp_emulated_run(const cudaLaunchConfig_t &config, const std::function<void()> &thread);

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);

template <typename... P, typename... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                             A &&...arguments)
{
    cudaLaunchConfig_t c = *config;

    static_assert((sizeof(P) + ... + 0) <= 4096, "parameters of a kernel are at most 4 KiB");
    cudaError_t err = sp_emulated_check(config, (const void *)kernel);

    if (err != cudaSuccess)
        return err;
    [&](P... given) {
        sp_emulated_queue([=] { sp_emulated_run(c, [=] { kernel(given...); }); });
    }(arguments...);
    return cudaSuccess;
}

#endif
