/* One layout of a search: its plan, its memory, its predicted step. Pure. */
#ifndef SP_TRIAL_H
#define SP_TRIAL_H

#include "plan/search/search.h"

/*
 * Predicts *f, whose schedule and sizes are given; recompute, offload and all figures are set. 0, -ENOMEM, or
 * -EINVAL if there is no such plan, without a word. With f->whole, which is set where it is so anyway, from all of its
 * micro-batches.
 */
int sp_trial(const struct sp_search *want, struct sp_found *f);

#endif
