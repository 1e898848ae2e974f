/*
 * ZBV: the layers go down the stages and up again in a V, and weight gradients fill what would be
 * bubbles (V-ZB of Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"; the order is
 * that of torch.distributed.pipelining, ScheduleZBVZeroBubble).
 *
 * p = 4, m = 8, 0-7 forward, a-h backward of micro-batches 0-7, ~ a weight gradient:
 *
 *   stage 0  01234560a~1b~2c~3d~7a~4e~b~5f~c~6g~d~7h~e~f~g~h~...
 *   stage 1  .01234051a~2b~3c~6a~4d~7b~5e~c~6f~d~7g~ehf~g~h~~~..
 *   stage 2  ..01203142a~3b~5a~4c~6b~5d~7c~6e~d~7f~egfhg~h~~~~~.
 *   stage 3  ...00112233a~4a~4b~5b~5c~6c~6d~7d~7e~effgghh~~~~~~~
 *
 * Makespan m(f + b + w) + (p-1)f/2 for f = b = w and m >= 2p-1, no more than the last stage's late
 * start; more for other costs. Each stage holds min(2p, 2m) chunks at most, as much as the first
 * stage of 1F1B.
 */
#include "policies/families/map.h"
#include "policies/orders/zero_bubble/vpattern.h"

/* Next micro-batch of each chunk and pass; numbers past the last are counted but not emitted. */
struct state {
    struct sp_program *prog;
    int m;
    int f[2], b[2], w[2];
};

static void add(const struct state *s, enum sp_pass pass, int mb, int chunk)
{
    if (mb < s->m)
        sp_program_add(s->prog, pass, mb, chunk);
}

static void forward(struct state *s, int chunk)
{
    add(s, SP_F, s->f[chunk]++, chunk);
}

static void backward(struct state *s, int chunk)
{
    add(s, SP_B, s->b[chunk]++, chunk);
}

static void weight(struct state *s, int chunk)
{
    add(s, SP_W, s->w[chunk]++, chunk);
}

static void backward_weight(struct state *s, int chunk)
{
    backward(s, chunk);
    weight(s, chunk);
}

/* From the first backward until the forwards run out. */
static void steady(struct state *s, int down, int n)
{
    for (int i = 0; i < down; i++) {
        forward(s, 1);
        backward_weight(s, 1);
    }
    while (s->f[1] < s->f[0] || s->f[0] < n) {
        if (s->f[0] < n)
            forward(s, 0);
        backward_weight(s, 0);
        forward(s, 1);
        backward_weight(s, 1);
    }
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int p = lay->stages, m = lay->micro_batches;
    int n = m > 2 * p - 1 ? m : 2 * p - 1; /* the order is made for at least 2p-1 */
    struct state s = {.prog = prog, .m = m};

    for (int i = 0; i < 2 * (p - stage) - 1; i++)
        forward(&s, 0);
    for (int i = 0; i < stage; i++) {
        forward(&s, 1);
        forward(&s, 0);
    }
    steady(&s, p - stage, n);
    for (int i = 0; i < stage; i++) {
        backward(&s, 0);
        backward(&s, 1);
    }
    for (int i = 0; i < p - stage; i++)
        backward_weight(&s, 0);
    while (s.w[1] < s.b[1])
        weight(&s, 1);
    while (s.w[0] < s.b[0])
        weight(&s, 0);
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return lay->micro_batches * (f + b + w) + (lay->stages - 1) * f / 2;
}

const struct sp_schedule_def sp_schedule_zbv = {
    .abi = SP_SCHEDULE_ABI,
    .name = "zbv",
    .summary = "zero bubble in a V: two chunks per stage, W fills the bubbles, memory of 1F1B",
    .source = "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, ZB-V; order of torch",
    .family = "layerwise",
    .default_chunks = 2,
    .check = sp_vpattern_check,
    .layerwise.global_stage = sp_place_wave,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "m(f+b+w) + (p-1)f/2: no bubble once the last stage has begun",
    .makespan_is = SP_LOWER_BOUND,
};
