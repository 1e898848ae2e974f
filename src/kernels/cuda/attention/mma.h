/*
 * Operations of a whole warp: products on the tensor cores, bf16 with sums in f32, the loads of
 * their operands from shared memory, and copies into shared memory that run beside the arithmetic.
 *
 * C(16,8) += A(16,16) B(16,8). Lane l has these elements of C: rows l/4 and l/4+8, columns 2(l%4)
 * and the next, as c[0..1] and c[2..3]. Two such blocks side by side, rounded, are A of a product
 * over their columns.
 */
#ifndef SP_CUDA_MMA_H
#define SP_CUDA_MMA_H

#include "kernels/cuda/device/launch.h"

SP_DEVICE void sp_mma(float c[4], const unsigned a[4], const unsigned b[2])
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    sp_emulated_mma(c, a, b);
#endif
}

/*
 * Loads four 8 x 8 blocks of bf16; lanes 8i to 8i+7 give the addresses of the rows of block i, 16
 * bytes each. r[i] = elements 2(l%4) and the next of row l/4 of block i; with `transposed` of
 * column l/4.
 */
template <bool transposed> SP_DEVICE void sp_ldmatrix(unsigned r[4], const bf16 *row)
{
#ifdef __CUDACC__
    unsigned address = (unsigned)__cvta_generic_to_shared(row);

    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
#else
    sp_emulated_ldmatrix(r, row, transposed);
#endif
}

/* Starts to copy 16 bytes to shared memory. Unless `real` it writes zeroes and does not read
 * `from`. */
SP_DEVICE void sp_copy_async(bf16 *to, const bf16 *from, bool real)
{
#ifdef __CUDACC__
    unsigned address = (unsigned)__cvta_generic_to_shared(to), bytes = real ? 16 : 0;

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#else
    sp_emulated_copy_async(to, from, real ? 16 : 0, 16);
#endif
}

/* Closes a group of the copies that this thread has started. */
SP_DEVICE void sp_copy_commit(void)
{
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    sp_emulated_copy_commit();
#endif
}

/* Waits for all of this thread's groups but the last `left`; a barrier after it covers the other
 * threads. */
template <int left> SP_DEVICE void sp_copy_wait(void)
{
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#else
    sp_emulated_copy_wait(left);
#endif
}

/* ---- operands from tiles of bf16, rows of `ld` elements -------------------------------------- */

/* A(i,k) = tile(i,k): 16 rows. */
SP_DEVICE void sp_mma_rows(unsigned a[4], const bf16 *tile, int ld)
{
    int lane = (int)threadIdx.x % SP_WARP;

    sp_ldmatrix<false>(a, tile + lane % 16 * ld + lane / 16 * 8);
}

/* Two B side by side, B(k,n) = tile(n,k): 16 rows, b[0..1] the first 8 of them. */
SP_DEVICE void sp_mma_columns(unsigned b[4], const bf16 *tile, int ld)
{
    int lane = (int)threadIdx.x % SP_WARP;

    sp_ldmatrix<false>(b, tile + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8);
}

/* Two B side by side, B(k,n) = tile(k,n): 16 rows, b[0..1] the first 8 columns. */
SP_DEVICE void sp_mma_across(unsigned b[4], const bf16 *tile, int ld)
{
    int lane = (int)threadIdx.x % SP_WARP;

    sp_ldmatrix<true>(b, tile + lane % 16 * ld + lane / 16 * 8);
}

/* A = two blocks of sums side by side, rounded. */
SP_DEVICE void sp_mma_round(unsigned a[4], const float left[4], const float right[4])
{
    a[0] = sp_bf16_pair(left[0], left[1]);
    a[1] = sp_bf16_pair(left[2], left[3]);
    a[2] = sp_bf16_pair(right[0], right[1]);
    a[3] = sp_bf16_pair(right[2], right[3]);
}

#endif
