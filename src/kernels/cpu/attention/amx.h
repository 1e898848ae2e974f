/*
 * AMX: eight tiles of 16 rows of 16 words, here always whole. A dot adds to C(16,16), f32, the
 * product of A(16,32) and B(32,16), bf16: words of A run along its rows, words of B down its
 * columns. TDPBF16PS sums the products of even and of odd places apart, then adds both to C, and
 * takes denormals for 0.
 *
 * SP_AMX_EMULATED: the tests have the same in plain C, for machines without it.
 */
#ifndef SP_KERNELS_AMX_H
#define SP_KERNELS_AMX_H

#include "kernels/dtype.h"
#include <stdbool.h>
#include <stddef.h>

enum { SP_AMX_ROWS = 16, SP_AMX_WORDS = 16 };

/* The layout that LDTILECFG reads; palette 0: no tiles. */
struct sp_amx_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64)));

#ifdef SP_AMX_EMULATED
#include "kernels/amx_emulated.h"
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
