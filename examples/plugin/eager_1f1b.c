/*
 * Eager 1F1B: like 1F1B, but stage i runs up to 2(p-1-i) forwards ahead instead of p-1-i, so that
 * while a tensor travels there is always another micro-batch to compute (Zhuang et al. 2023, "On
 * Optimizing the Communication of Model Parallelism", MLSys; OverlapFriendlyPipeDreamSchedule of
 * Alpa). `ahead=A` generalises it: A(p-1-i) forwards; ahead=1 is 1F1B.
 *
 * p = 4, m = 8, a backward twice as long as a forward:
 *
 *   stage 0  0123456...00711.22.33.44.55.66.77
 *   stage 1  .01234..00511622733.44.55.66.77..
 *   stage 2  ..012.00311422533644755.66.77....
 *   stage 3  ...000111222333444555666777......
 *
 * Makespan (m + p - 1)(f + b + w), as 1F1B, while communication is free. If a tensor takes as long
 * as a forward (f = b = w = comm = 1), it is 39 in this picture and 49 for 1F1B. The price is
 * memory: stage i holds min(A(p-1-i) + 1, m) micro-batches.
 */
#include <starpipe/schedule.h>
#include <errno.h>
#include <stdio.h>

/* Forwards per stage below, the option `ahead`. */
static int ahead(const struct sp_layout *lay, int *ok)
{
    return sp_layout_option_int(lay, "ahead", 2, ok);
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int ok = 1, a = ahead(lay, &ok);

    if (!ok || a < 1) {
        snprintf(why, n, "wants ahead=A with a whole number A of at least 1");
        return -EINVAL;
    }
    if (lay->chunks != 1) {
        snprintf(why, n, "has 1 chunk per stage, not %d; use --chunks 1", lay->chunks);
        return -EINVAL;
    }
    if (lay->slices != 1) {
        snprintf(why, n, "runs whole sequences, not %d slices; use --slices 1", lay->slices);
        return -EINVAL;
    }
    return 0;
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int ok = 1, m = lay->micro_batches;
    long long warm_up = (long long)ahead(lay, &ok) * (lay->stages - 1 - stage);
    int f = 0, b = 0;

    while (f < m && f < warm_up)
        sp_program_add(prog, SP_F, f++, 0);
    while (f < m) {
        sp_program_add(prog, SP_F, f++, 0);
        sp_program_add(prog, SP_B, b++, 0);
    }
    while (b < m)
        sp_program_add(prog, SP_B, b++, 0);
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return ((double)lay->micro_batches + lay->stages - 1) * (f + b + w);
}

static const struct sp_schedule_def eager_1f1b = {
    .abi = SP_SCHEDULE_ABI,
    .name = "eager-1f1b",
    .summary = "1F1B that runs twice as far ahead, to hide communication (ahead=A: A times)",
    .source = "Zhuang et al. 2023 (MLSys), eager-1F1B",
    .family = "layerwise",
    .options = "ahead",
    .default_chunks = 1,
    .check = check,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "(m+p-1)(f+b+w), as 1F1B",
};

SP_PLUGIN(&eager_1f1b);
