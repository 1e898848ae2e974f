/* Ops of the head put into programs of chunks, for given costs. */
#ifndef SP_INSERTION_H
#define SP_INSERTION_H

#include "policies/plan.h"

struct sp_insertion;

/* For a plan of chunks that were indexed (sp_plan_index), which it keeps. NULL: no memory. */
struct sp_insertion *sp_insertion_create(const struct sp_plan *plan);
void sp_insertion_destroy(struct sp_insertion *w);

/*
 * The programs with forwards that many micro-batches (slices) earlier, each where another one was, and ops of the head
 * as soon as a stage can, by a list simulation at these costs, messages included: out[stages], whose ops are replaced.
 * False: the stages wait for each other.
 */
bool sp_insertion(struct sp_insertion *w, const struct sp_costs *costs, int ahead,
                  struct sp_program *out);

#endif
