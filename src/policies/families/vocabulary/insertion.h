/* Inserts the head's ops into programs of chunks, for given costs. */
#ifndef SP_INSERTION_H
#define SP_INSERTION_H

#include "policies/plan.h"

struct sp_insertion;

/* For a plan of chunks that were indexed (sp_plan_index); the plan must outlive it. NULL: no
 * memory. */
struct sp_insertion *sp_insertion_create(const struct sp_plan *plan);
void sp_insertion_destroy(struct sp_insertion *w);

/*
 * Writes to out[stages] the programs with forwards moved ahead by that many micro-batches (slices),
 * each to an earlier forward's place. The head's ops come as soon as a stage can run them in a list
 * simulation at these costs, messages included. The ops of `out` are replaced. False: the stages
 * wait for each other.
 */
bool sp_insertion(struct sp_insertion *w, const struct sp_costs *costs, int ahead,
                  struct sp_program *out);

#endif
