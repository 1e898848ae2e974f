/*
 * Varies the times of a step's ops: each varies at random, or a stage or a link is slow. The same
 * seed gives an op the same time whatever runs before it, so that two ways to run a plan can be
 * compared. Pure; the factors are inline for the benchmark that slows real tasks down by them
 * (bench/slow_cores.c).
 */
#ifndef SP_VARIATION_H
#define SP_VARIATION_H

#include "plan/simulation/simulate.h"
#include <math.h>

struct sp_variation {
    /* An op's time is multiplied by a random factor of mean 1: uniform in 1 - uniform .. 1 +
     * uniform, and lognormal with this standard deviation. 0: by 1. */
    double uniform, lognormal;
    uint64_t seed;
    int slow_stage; /* all its ops take `stage_by` times as long; stage_by 0: none */
    int slow_link; /* messages between stages slow_link and the next take `link_by` times as long */
    double stage_by, link_by;
};

/* Number `at` of a stream of uniform numbers in (0, 1): splitmix64. */
static inline double sp_variation_draw(uint64_t seed, uint64_t at)
{
    uint64_t z = (seed + 1) * 0xd1342543de82ef95u + (at + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

/* The factor on the time of the op at a place of its stage's program. */
static inline double sp_variation_factor(const struct sp_variation *v, int stage, int place)
{
    uint64_t at = (uint64_t)stage << 32 | (uint64_t)place << 1;
    double a = sp_variation_draw(v->seed, at), b = sp_variation_draw(v->seed, at + 1);
    double factor = v->stage_by > 0 && stage == v->slow_stage ? v->stage_by : 1;

    if (v->uniform > 0)
        factor *= 1 + v->uniform * (2 * a - 1);
    if (v->lognormal > 0) {
        double variance = log(1 + v->lognormal * v->lognormal);
        double normal = sqrt(-2 * log(a)) * cos(6.283185307179586 * b);

        factor *= exp(sqrt(variance) * normal - variance / 2);
    }
    return factor;
}

/*
 * Reads "uniform=0.3,seed=2", "lognormal=0.5", "stage=2x1.5", "link=0x4" for a plan of so many
 * stages. The default seed is 1. 0; or -EINVAL after one line that begins with the command.
 */
int sp_variation_parse(const char *command, const char *text, int stages, struct sp_variation *v);

/* Multiplies the costs of ops, by the ids of the family: each array by the same factors, NULL
 * skipped. */
void sp_variation_apply(const struct sp_variation *v, const struct sp_plan *plan,
                        double *const *by_op, int arrays);

/* A network with the slow link. */
struct sp_varied_network {
    const struct sp_network *network;
    const struct sp_variation *variation;
};
struct sp_network sp_network_varied(const struct sp_varied_network *varied);

#endif
