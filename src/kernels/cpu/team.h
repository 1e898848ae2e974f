/*
 * The calling thread's OpenMP team: shares of a range, and scratch memory that is reused from call
 * to call.
 */
#ifndef SP_KERNELS_TEAM_H
#define SP_KERNELS_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void)
{
    return 0;
}
static inline int omp_get_num_threads(void)
{
    return 1;
}
static inline int omp_get_max_threads(void)
{
    return 1;
}
static inline int omp_in_parallel(void)
{
    return 0;
}
#endif

/* The most threads that OpenMP gives a team here: OMP_THREAD_LIMIT, which a program cannot raise. */
int sp_team_most(void);

/* From here on the teams of the calling thread have `threads` threads, at most sp_team_most(), whatever OMP_DYNAMIC,
 * OMP_MAX_ACTIVE_LEVELS and OMP_NUM_THREADS say. */
void sp_team_settle(int threads);

/* Called before oneDNN is: it divides a product among omp_get_max_threads() threads and leaves part of it out where
 * the team is smaller. */
static inline void sp_team_ensure(void)
{
    extern _Thread_local bool sp_team_settled;

    if (!sp_team_settled && !omp_in_parallel())
        sp_team_settle(omp_get_max_threads());
}

/* Below this many elements, waking the team costs more than it saves. */
#define SP_TEAM_WORTH 8192

/* This thread's share [*lo, *hi) of n elements, cut at multiples of `grain`. */
static inline void sp_team_share(size_t n, size_t grain, size_t *lo, size_t *hi)
{
    size_t team = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
    size_t grains = (n + grain - 1) / grain;

    *lo = grains * me / team * grain;
    *hi = grains * (me + 1) / team * grain;
    *lo = *lo < n ? *lo : n;
    *hi = *hi < n ? *hi : n;
}

enum sp_scratch_slot {
    SP_SCRATCH_OWN,     /* of one thread inside a parallel region */
    SP_SCRATCH_TEAM,    /* of the thread that starts a region, shared by the team */
    SP_SCRATCH_PRODUCT, /* inside of sp_gemm_bf16 */
    SP_SCRATCH_FP8,     /* operands of a product */
    SP_SCRATCH_SLOTS
};

/*
 * At least `bytes` bytes of the calling thread's own memory, 64-byte aligned, contents undefined,
 * valid until the thread's next call with that slot. It grows, never shrinks, and is freed when
 * the thread exits. Aborts the run if there is no memory.
 */
void *sp_scratch(enum sp_scratch_slot slot, size_t bytes);

#endif
