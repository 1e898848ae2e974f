/*
 * The operands of products in fp8 (kernels/fp8.h), as cuBLASLt wants them on Hopper: codes, with the
 * dimension that the product sums over along the rows. One pass over an array finds its largest
 * magnitude, another one writes codes. The least traffic of both is 5 bytes an element; the second
 * pass begins where the first ended, so that what the L2 holds of the array is not read from memory
 * again.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/gemm/fp8_cuda.h"
#include "kernels/fp8.h"

enum {
    WORD = 16,  /* codes in one access */
    ROWS = 128, /* of a tile that is transposed */
    COLUMNS = 64,
    PITCH = ROWS / 4 + 1 /* words of a column in shared memory: columns begin in other banks */
};

SP_DEVICE unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* The largest of all threads of a block of SP_BLOCK; `shared`: a word a warp. */
SP_DEVICE unsigned block_largest(unsigned x, unsigned *shared)
{
    for (int with = SP_WARP / 2; with; with /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, with));
    if (threadIdx.x % SP_WARP == 0)
        shared[threadIdx.x / SP_WARP] = x;
    __syncthreads();
    for (int w = 0; w < SP_BLOCK / SP_WARP; w++)
        x = larger(x, shared[w]);
    return x;
}

/* The larger of two bf16 in a word, without their signs. Infinities are larger than numbers, NaNs
 * still. */
SP_DEVICE unsigned pair_largest(unsigned pair)
{
    return larger(pair & 0x7fffu, pair >> 16 & 0x7fffu);
}

/* part[block] = the largest magnitude of its accesses of V elements; `each` accesses make a row of
 * an array whose rows are ld apart. */
template <int V>
SP_KERNEL void amax_kernel(size_t accesses, unsigned each, size_t ld, const bf16 *x, unsigned *part)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    unsigned most = 0;

#pragma unroll 4
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < accesses; i += stride) {
        const bf16 *at = x + (each == ld / V ? i * V : i / each * ld + i % each * V);

        if (V == 1) {
            most = larger(most, at->bits & 0x7fffu);
        } else {
            uint4 v = *(const uint4 *)at;

            most = larger(most, larger(larger(pair_largest(v.x), pair_largest(v.y)),
                                       larger(pair_largest(v.z), pair_largest(v.w))));
        }
    }
    most = block_largest(most, sp_shared<unsigned>());
    if (threadIdx.x == 0)
        part[blockIdx.x] = most;
}

/* Returns the factor of an array before it is rounded. NaN if something in it is not finite; then
 * so is all of it. The first block leaves the reciprocal for the product. */
template <int F>
SP_DEVICE float scale_of(int parts, const unsigned *part, unsigned *shared, float *reciprocal)
{
    unsigned most = 0;
    int e;

    for (int p = (int)threadIdx.x; p < parts; p += SP_BLOCK)
        most = larger(most, part[p]);
    most = block_largest(most, shared);
    e = sp_fp8_exponent((enum sp_fp8_format)F, most);
    if (reciprocal && blockIdx.x == 0 && threadIdx.x == 0)
        *reciprocal = most < 0x7f80u ? sp_power_of_two(-e) : NAN;
    return most < 0x7f80u ? sp_power_of_two(e) : NAN;
}

/* Two codes, that of `low` in the lower half. */
template <int F> SP_DEVICE unsigned code_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;

    if (F == SP_E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return sp_fp8_code((enum sp_fp8_format)F, low) |
           (unsigned)sp_fp8_code((enum sp_fp8_format)F, high) << 8;
#endif
}

template <int F> SP_DEVICE unsigned code_word(float a, float b, float c, float d)
{
    return code_pair<F>(a, b) | code_pair<F>(c, d) << 16;
}

struct array {
    int rows, width;
    size_t ld;
    const bf16 *x;
    bool wide; /* 8 elements from a multiple of 8 on are an access */
};

/* v = 8 elements of a row from c on, scaled; beyond the array they are 0. */
SP_DEVICE void load_scaled(const struct array a, int row, int c, float scale, float v[8])
{
    const bf16 *at = a.x + (size_t)row * a.ld + c;

    if (a.wide && row < a.rows && c + 8 <= a.width)
        sp_load<8>(at, v);
    else
        for (int i = 0; i < 8; i++)
            v[i] = row < a.rows && c + i < a.width ? sp_value(at[i]) : 0.0f;
    for (int i = 0; i < 8; i++)
        v[i] *= scale;
}

/* to(rows,ld_to): codes, each thread a word of a row; zeros follow the width. */
template <int F>
SP_KERNEL void rows_kernel(const struct array a, int parts, const unsigned *part, float *reciprocal,
                           uint8_t *to, unsigned ld_to)
{
    float scale = scale_of<F>(parts, part, sp_shared<unsigned>(), reciprocal), v[WORD];
    size_t i = (size_t)(gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned words = ld_to / WORD;
    size_t row = i / words, c = i % words * WORD;
    uint4 out;

    if (row >= (size_t)a.rows)
        return;
    load_scaled(a, (int)row, (int)c, scale, v);
    load_scaled(a, (int)row, (int)c + 8, scale, v + 8);
    out.x = code_word<F>(v[0], v[1], v[2], v[3]);
    out.y = code_word<F>(v[4], v[5], v[6], v[7]);
    out.z = code_word<F>(v[8], v[9], v[10], v[11]);
    out.w = code_word<F>(v[12], v[13], v[14], v[15]);
    *(uint4 *)(to + row * ld_to + c) = out;
}

/* to(width,ld_to): codes of the transpose; zeros follow the rows. A block has a tile: each thread
 * reads 8 elements of 4 rows, and writes two words of a column. */
template <int F>
SP_KERNEL void columns_kernel(const struct array a, int parts, const unsigned *part,
                              float *reciprocal, uint8_t *to, unsigned ld_to)
{
    unsigned *shared = sp_shared<unsigned>(), *tile = shared + SP_WARP;
    float scale = scale_of<F>(parts, part, shared, reciprocal), v[4][8];
    unsigned at = gridDim.x - 1 - blockIdx.x, across = (a.width + COLUMNS - 1) / COLUMNS;
    int row = (int)(at / across) * ROWS, column = (int)(at % across) * COLUMNS;
    int q = (int)threadIdx.x / 8, c = (int)threadIdx.x % 8 * 8;

    for (int r = 0; r < 4; r++)
        load_scaled(a, row + 4 * q + r, column + c, scale, v[r]);
    for (int i = 0; i < 8; i++)
        tile[(c + i) * PITCH + q] = code_word<F>(v[0][i], v[1][i], v[2][i], v[3][i]);
    __syncthreads();
    for (int piece = (int)threadIdx.x; piece < COLUMNS * ROWS / WORD; piece += SP_BLOCK) {
        int own = piece / (ROWS / WORD), from = piece % (ROWS / WORD) * WORD;
        const unsigned *words = tile + own * PITCH + from / 4;

        if (column + own < a.width && row + from < (int)ld_to) {
            uint4 out;

            out.x = words[0], out.y = words[1], out.z = words[2], out.w = words[3];
            *(uint4 *)(to + (size_t)(column + own) * ld_to + row + from) = out;
        }
    }
}

/* to(rows,width), dense: the rounded numbers themselves, which are bf16. */
template <int F>
SP_KERNEL void numbers_kernel(const struct array a, int parts, const unsigned *part, bf16 *to)
{
    unsigned *shared = sp_shared<unsigned>();
    float scale = scale_of<F>(parts, part, shared, NULL);
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t row = i / (unsigned)a.width, c = i % (unsigned)a.width;

    if (row < (size_t)a.rows) /* one divided by a power of two, or NaN */
        sp_put(to + i,
               sp_fp8_nearest((enum sp_fp8_format)F, sp_value(a.x[row * a.ld + c]) * scale) *
                   (1.0f / scale));
}

static struct array array_of(const struct sp_fp8_operand *o)
{
    const bf16 *x = (const bf16 *)o->x;

    return {o->rows, o->width, (size_t)o->ld, x, sp_is_wide(x, (size_t)o->ld)};
}

extern "C" void sp_cuda_fp8_amax(const struct sp_backend *k, struct sp_fp8_operand *o)
{
    const struct array a = array_of(o);
    size_t n = (size_t)o->rows * (size_t)o->width;
    int v = a.wide && o->width % 8 == 0 ? 8 : 1;

    o->parts = (int)sp_at_most(sp_blocks(n / (size_t)v, 4 * SP_BLOCK), SP_FP8_PARTS);
    sp_launch(k, "fp8_amax", v == 8 ? amax_kernel<8> : amax_kernel<1>, (unsigned)o->parts, SP_BLOCK,
              SP_WARP * sizeof(unsigned), n / (size_t)v, (unsigned)(o->width / v), a.ld, a.x,
              o->part);
}

template <int F> static void codes(const struct sp_backend *k, const struct sp_fp8_operand *o)
{
    const struct array a = array_of(o);
    size_t shared = SP_WARP * sizeof(unsigned);
    size_t words = (size_t)o->rows * (size_t)(o->ld_to / WORD);

    if (o->transposed)
        sp_launch(k, "fp8_columns", columns_kernel<F>,
                  sp_blocks((size_t)o->width, COLUMNS) * sp_blocks((size_t)o->rows, ROWS), SP_BLOCK,
                  shared + COLUMNS * PITCH * sizeof(unsigned), a, o->parts, o->part, o->reciprocal,
                  (uint8_t *)o->to, (unsigned)o->ld_to);
    else
        sp_launch(k, "fp8_rows", rows_kernel<F>, sp_blocks(words, SP_BLOCK), SP_BLOCK, shared, a,
                  o->parts, o->part, o->reciprocal, (uint8_t *)o->to, (unsigned)o->ld_to);
}

extern "C" void sp_cuda_fp8_codes(const struct sp_backend *k, const struct sp_fp8_operand *o)
{
    (o->format == SP_E4M3 ? codes<SP_E4M3> : codes<SP_E5M2>)(k, o);
}

extern "C" void sp_cuda_fp8_numbers(const struct sp_backend *k, const struct sp_fp8_operand *o)
{
    sp_launch(k, "fp8_numbers",
              o->format == SP_E4M3 ? numbers_kernel<SP_E4M3> : numbers_kernel<SP_E5M2>,
              sp_blocks((size_t)o->rows * (size_t)o->width, SP_BLOCK), SP_BLOCK,
              SP_WARP * sizeof(unsigned), array_of(o), o->parts, o->part, (bf16 *)o->to);
}
