/* One layout of a search: its plan, its memory, its predicted step. Pure. */
#ifndef SP_TRIAL_H
#define SP_TRIAL_H

#include "plan/search/found.h"
#include "policies/order_book.h"

/*
 * Predicts *f, whose schedule and sizes are given; recompute, offload and all figures are set. 0, -ENOMEM, or
 * -EINVAL if there is no such plan, or if its step is sure to take longer than `beat_ms` (INFINITY: never), without a word.
 * `book`: of orders found before, which it adds to; NULL: none. With f->whole, from all of its micro-batches, and with
 * what layers compute again chosen one by one where that is faster.
 */
int sp_trial(const struct sp_search *want, struct sp_order_book *book, double beat_ms,
             struct sp_found *f);

/*
 * Plans *f again, which has its modes, and simulates all its micro-batches, of which there may be fewer now; `look`
 * sees what comes out. 0, -ENOMEM, -EINVAL as above, or what `look` returns.
 */
struct sp_prediction;
typedef int sp_trial_look(const struct sp_plan *plan, const struct sp_prediction *p, void *data);
int sp_trial_show(const struct sp_search *want, const struct sp_found *f, sp_trial_look *look,
                  void *data);

#endif
