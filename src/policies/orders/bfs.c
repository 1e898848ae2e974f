/*
 * Looped breadth-first: each stage holds v chunks and runs all micro-batches through one before it
 * takes the next; backwards last in, first out (Lamy-Poirier 2023, "Breadth-First Pipeline
 * Parallelism"; code: torch.distributed.pipelining, ScheduleLoopedBFS).
 *
 * p = 4, m = 8, v = 2, 0-7 forward, a-h backward of micro-batches 0-7:
 *
 *   stage 0  0123456701234567.........hhggffeeddccbbaahhggffeeddccbbaa
 *   stage 1  .0123456701234567......hhggffeeddccbbaahhggffeeddccbbaa..
 *   stage 2  ..0123456701234567...hhggffeeddccbbaahhggffeeddccbbaa....
 *   stage 3  ...0123456701234567hhggffeeddccbbaahhggffeeddccbbaa......
 *
 * Makespan (m + (p-1)/v)(f + b + w) for m >= p. Each stage holds all m micro-batches.
 */
#include "policies/refuse.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.slices = 1;
    return sp_refuse_chunks(lay, &fit, why, n);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches;

    (void)stage;
    for (int c = 0; c < lay->chunks; c++) {
        for (int i = 0; i < m; i++)
            sp_program_add(prog, SP_F, i, c);
    }
    for (int c = lay->chunks - 1; c >= 0; c--) {
        for (int i = m - 1; i >= 0; i--)
            sp_program_add(prog, SP_B, i, c);
    }
}

/* With m < p a stage waits p - m chunks before each of its chunks but the first. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double p = lay->stages, m = lay->micro_batches, v = lay->chunks;
    double each = m > p ? m : p;

    return ((v - 1) * each + m + p - 1) / v * (f + b + w);
}

const struct sp_schedule_def sp_schedule_bfs = {
    .abi = SP_SCHEDULE_ABI,
    .name = "bfs",
    .summary = "looped breadth-first: all micro-batches through one chunk, then the next",
    .source = "Lamy-Poirier 2023, Breadth-First Pipeline Parallelism",
    .family = "layerwise",
    .default_chunks = 2,
    .check = check,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "(m + (p-1)/v)(f+b+w), from the bubble (p-1)/(mv); for m < p with v-1 waits "
                       "of p-m chunks more",
    .makespan_is = SP_EXACT,
};
