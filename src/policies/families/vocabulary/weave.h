/* Inserts the head's ops into programs of chunks, for given costs. */
#ifndef SP_WEAVE_H
#define SP_WEAVE_H

#include "policies/plan.h"

struct sp_weave;

/* For a plan of chunks that were indexed (sp_plan_index); the plan must outlive it. NULL: no
 * memory. */
struct sp_weave *sp_weave_create(const struct sp_plan *plan);
void sp_weave_destroy(struct sp_weave *w);

/*
 * Writes to out[stages] the programs with forwards moved ahead by that many micro-batches (slices),
 * each to an earlier forward's place. The head's ops come as soon as a stage can run them in a list
 * simulation at these costs, messages included. The ops of `out` are replaced. False: the stages
 * wait for each other.
 */
bool sp_weave(struct sp_weave *w, const struct sp_costs *costs, int ahead, struct sp_program *out);

#endif
