/* Tries one layout of a search: makes its plan, counts its memory, predicts its step. Pure. */
#ifndef SP_TRIAL_H
#define SP_TRIAL_H

#include "plan/search/found.h"
#include "policies/order_book.h"

/*
 * Predicts *f, whose schedule and sizes are given; sets recompute, offload and all figures. 0,
 * -ENOMEM, or, silently, -EINVAL if there is no such plan, or if its step is sure to take longer
 * than `beat_ms` (INFINITY: never). `book` holds orders found before, and gets those found here;
 * NULL: none. With f->whole it simulates all micro-batches, and also chooses recomputation layer by
 * layer if that is faster.
 */
int sp_trial(const struct sp_search *want, struct sp_order_book *book, double beat_ms,
             struct sp_found *f);

/*
 * Plans *f again in its modes and simulates all its micro-batches, of which there may be fewer now;
 * `look` receives the result. 0, -ENOMEM, -EINVAL as above, or the value that `look` returns.
 */
struct sp_prediction;
typedef int sp_trial_look(const struct sp_plan *plan, const struct sp_prediction *p, void *data);
int sp_trial_show(const struct sp_search *want, const struct sp_found *f, sp_trial_look *look,
                  void *data);

#endif
