/* Shared by the tests of AdaPipe: random inputs, and its figures worked out again. */
#ifndef SP_TESTS_PLAN_ADAPIPE_H
#define SP_TESTS_PLAN_ADAPIPE_H

#include "policies/common.h"
#include "plan/adapipe.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <math.h>

#define MODES SP_RECOMPUTE_MODES
#define MOST 160

static uint64_t seed = 1;

static inline int random_int(int from, int to)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return from + (int)((seed >> 33) % (uint64_t)(to - from + 1));
}

/* The list-simulated makespan of stages of unequal times. */
static inline double simulated(const char *schedule, int p, int m, const double *f, const double *b)
{
    struct sp_costs costs = {.f = 1, .b = 1, .scale_f = f, .scale_b = b};
    struct sp_plan plan;
    struct sp_times t;
    char why[256] = "";
    double makespan;

    make_plan(schedule, p, m, &plan);
    if (sp_listsim(&plan, &costs, SP_UNBOUNDED, &t, why, sizeof why))
        fail_msg("%s p=%d m=%d: %s", schedule, p, m, why);
    makespan = t.makespan;
    sp_times_destroy(&t);
    sp_plan_destroy(&plan);
    return makespan;
}

/* Fields drawn at random, ties and odd cases included: modes that keep more and cost more too. */
static inline void random_input(struct sp_adapipe *in, int p, int L, int m)
{
    struct sp_adapipe_memory *mem = &in->memory;
    struct sp_layer_costs *c = &in->costs;
    bool odd = random_int(0, 3) == 0;
    int extra[MODES] = {0};

    *in = (struct sp_adapipe){.stages = p, .layers = L, .micro_batches = m};
    c->embed_fwd_us = random_int(0, 5);
    c->embed_bwd_us = random_int(0, 5);
    c->pre_fwd_us = random_int(1, 10);
    c->attn_fwd_us = random_int(1, 20);
    c->post_fwd_us = random_int(1, 10);
    c->bwd_us = random_int(1, 50);
    c->wgrad_us = random_int(1, 30);
    c->head_us = random_int(0, 60);
    c->recompute_us[1] = random_int(0, 5);
    c->recompute_us[2] = c->recompute_us[1] + random_int(0, 20);
    c->recompute_us[3] = c->recompute_us[2] + random_int(0, 20);
    mem->stash_bytes[3] = random_int(1, 10);
    for (int j = 2; j >= 0; j--)
        mem->stash_bytes[j] = mem->stash_bytes[j + 1] + random_int(0, 30);
    for (int j = 0; odd && j < MODES; j++) {
        c->recompute_us[j] = random_int(0, 20);
        mem->stash_bytes[j] = random_int(0, 60);
    }
    mem->stage_bytes = random_int(0, 50);
    mem->first_bytes = random_int(0, 100);
    mem->last_bytes = random_int(0, 100);
    mem->layer_bytes = random_int(0, 60);
    mem->head_stash_bytes = random_int(0, 20);
    for (int j = 1; j < MODES; j++)
        extra[j] = random_int(0, 1) ? random_int(0, 80) : 0;
    for (int set = 1; set < 1 << MODES; set++) {
        for (int j = 0; j < MODES; j++)
            mem->workspace_bytes[set] += set & 1 << j ? extra[j] : 0;
    }
}

/* Bytes worked out from the header's description: stage s of 1F1B stashes min(p - s, m) times. */
static inline int64_t bytes_of(const struct sp_adapipe *in, int s, int count,
                               const unsigned char *mode)
{
    const struct sp_adapipe_memory *mem = &in->memory;
    int64_t in_flight = in->stages - s, bytes = mem->stage_bytes + count * mem->layer_bytes;
    int set = 0;

    in_flight = in_flight > in->micro_batches ? in->micro_batches : in_flight;
    bytes += ((s == 0) + (s == in->stages - 1)) * in->micro_batches * mem->tokens_bytes;
    bytes += s == 0 ? mem->first_bytes : 0;
    bytes += s == in->stages - 1 ? mem->last_bytes + in_flight * mem->head_stash_bytes : 0;
    for (int l = 0; l < count; l++) {
        bytes += in_flight * mem->stash_bytes[mode[l]];
        set |= 1 << mode[l];
    }
    return bytes + mem->workspace_bytes[set];
}

static inline void times_of(const struct sp_adapipe *in, const int *counts,
                            const unsigned char *mode, double *f, double *b)
{
    const struct sp_layer_costs *c = &in->costs;

    for (int s = 0, l = 0; s < in->stages; s++) {
        f[s] = s == 0 ? c->embed_fwd_us : 0;
        b[s] = (s == 0 ? c->embed_bwd_us : 0) + (s == in->stages - 1 ? c->head_us : 0);
        for (int k = 0; k < counts[s]; k++, l++) {
            f[s] += c->pre_fwd_us + c->attn_fwd_us + c->post_fwd_us;
            b[s] += c->bwd_us + c->wgrad_us + c->recompute_us[mode[l]];
        }
    }
}

#endif
