/*
 * AMX: eight tiles of 16 rows of 16 words, here always whole. A dot adds to C(16,16), f32, the
 * product of A(16,32) and B(32,16), bf16: words of A run along its rows, words of B down its
 * columns. TDPBF16PS sums the products of even and of odd places apart, then adds both to C, and
 * takes denormals for 0.
 *
 * SP_AMX_EMULATED: the same in plain C, for tests on machines without it.
 */
#ifndef SP_KERNELS_AMX_H
#define SP_KERNELS_AMX_H

#include "kernels/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SP_AMX_ROWS = 16, SP_AMX_WORDS = 16 };

/* The layout that LDTILECFG reads; palette 0: no tiles. */
struct sp_amx_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64)));

#ifdef SP_AMX_EMULATED

static __thread uint32_t sp_amx_tile[8][SP_AMX_ROWS][SP_AMX_WORDS];
static __thread struct sp_amx_config sp_amx_is;

static inline bool sp_amx_supported(void)
{
    return true;
}

/* Configuring sets the size of the tiles; here they must be whole. */
static inline int sp_amx_whole(int t)
{
    if (sp_amx_is.palette != 1 || sp_amx_is.rows[t] != SP_AMX_ROWS ||
        sp_amx_is.row_bytes[t] != SP_AMX_WORDS * sizeof(uint32_t))
        abort();
    return t;
}

/* Old contents are lost, as on the machine. It zeroes the tiles; here NaNs show reads of lost
 * contents. */
static inline void sp_amx_configure(const struct sp_amx_config *to)
{
    memset(sp_amx_tile, 0xff, sizeof sp_amx_tile);
    sp_amx_is = *to;
}

static inline void sp_amx_configured(struct sp_amx_config *is)
{
    *is = sp_amx_is;
}

static inline void sp_amx_dot_(int c, int a, int b)
{
    for (int m = 0; m < SP_AMX_ROWS; m++)
        for (int n = 0; n < SP_AMX_ROWS; n++) {
            float sum[2] = {0, 0}, old;
            uint16_t left[2], right[2];

            for (int k = 0; k < SP_AMX_WORDS; k++) {
                memcpy(left, &sp_amx_tile[a][m][k], sizeof left);
                memcpy(right, &sp_amx_tile[b][k][n], sizeof right);
                for (int half = 0; half < 2; half++)
                    sum[half] += sp_bf16_value(left[half]) * sp_bf16_value(right[half]);
            }
            memcpy(&old, &sp_amx_tile[c][m][n], sizeof old);
            old += sum[0] + sum[1];
            memcpy(&sp_amx_tile[c][m][n], &old, sizeof old);
        }
}

static inline void sp_amx_load_(int t, const void *from, size_t stride)
{
    for (int r = 0; r < SP_AMX_ROWS; r++)
        memcpy(sp_amx_tile[t][r], (const char *)from + (size_t)r * stride,
               sizeof sp_amx_tile[t][r]);
}

static inline void sp_amx_store_(int t, void *to, size_t stride)
{
    for (int r = 0; r < SP_AMX_ROWS; r++)
        memcpy((char *)to + (size_t)r * stride, sp_amx_tile[t][r], sizeof sp_amx_tile[t][r]);
}

#define sp_amx_zero(t) memset(sp_amx_tile[sp_amx_whole(t)], 0, sizeof sp_amx_tile[t])
#define sp_amx_load(t, from, stride) sp_amx_load_(sp_amx_whole(t), from, stride)
#define sp_amx_store(t, to, stride) sp_amx_store_(sp_amx_whole(t), to, stride)
#define sp_amx_dot(c, a, b) sp_amx_dot_(sp_amx_whole(c), sp_amx_whole(a), sp_amx_whole(b))

#else

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Also asks the kernel to let this process's threads use tiles. */
static inline bool sp_amx_supported(void)
{
    enum { LEAF = 7, BF16 = 1 << 22, TILE = 1 << 24, ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    unsigned a, b, c, d;

    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILE) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}

static inline void sp_amx_configure(const struct sp_amx_config *to)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*to) : "memory");
}

static inline void sp_amx_configured(struct sp_amx_config *is)
{
    __asm__ volatile("sttilecfg %0" : "=m"(*is) : : "memory");
}

/* The compiler's intrinsics are unsafe: gcc 12's let it move stores to memory past loads of
 * tiles. Strides in bytes. */
#define sp_amx_zero(t) __asm__ volatile("tilezero %%tmm" #t : : :)
#define sp_amx_load(t, from, stride)                                                               \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"(stride) : "memory")
#define sp_amx_store(t, to, stride)                                                                \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"(stride) : "memory")
#define sp_amx_dot(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)

#endif
#endif
