/* Ops of the head put into programs of chunks, for given costs. */
#ifndef SP_WEAVE_H
#define SP_WEAVE_H

#include "policies/plan.h"

struct sp_weave;

/* For a plan of chunks that were indexed (sp_plan_index), which it keeps. NULL: no memory. */
struct sp_weave *sp_weave_create(const struct sp_plan *plan);
void sp_weave_destroy(struct sp_weave *w);

/*
 * The programs with forwards that many micro-batches (slices) earlier, each where another one was, and ops of the head
 * as soon as a stage can, by a list simulation at these costs, messages included: out[stages], whose ops are replaced.
 * False: the stages wait for each other.
 */
bool sp_weave(struct sp_weave *w, const struct sp_costs *costs, int ahead, struct sp_program *out);

#endif
