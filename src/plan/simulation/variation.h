/*
 * Steps whose ops take other times than planned: each varies at random, a stage or a link is slow. The same seed gives
 * an op the same time whatever the order, so that two ways to run a plan can be compared. Pure.
 */
#ifndef SP_VARIATION_H
#define SP_VARIATION_H

#include "plan/simulation/simulate.h"

struct sp_variation {
    /* An op's time is multiplied by a factor of mean 1: uniform in 1 - uniform .. 1 + uniform, and lognormal of this
     * standard deviation. 0: by 1. */
    double uniform, lognormal;
    uint64_t seed;
    int slow_stage; /* all its ops take `stage_by` times as long; stage_by 0: none */
    int slow_link; /* messages between stages slow_link and slow_link + 1 take `link_by` times as long */
    double stage_by, link_by;
};

/*
 * Reads "uniform=0.3,seed=2", "lognormal=0.5", "stage=2x1.5", "link=0x4" for a plan of so many stages. Without a seed
 * it is 1. 0; or -EINVAL after one line that begins with the command.
 */
int sp_variation_parse(const char *command, const char *text, int stages, struct sp_variation *v);

/* Multiplies the costs of ops, by the numbers of the family, each array by the same factors; NULL: none to multiply. */
void sp_variation_apply(const struct sp_variation *v, const struct sp_plan *plan,
                        double *const *by_op, int arrays);

/* A network with the slow link. */
struct sp_varied_network {
    const struct sp_network *network;
    const struct sp_variation *variation;
};
struct sp_network sp_network_varied(const struct sp_varied_network *varied);

#endif
