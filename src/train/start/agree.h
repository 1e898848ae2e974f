/* Finds processes that disagree, before any of them waits for another. */
#ifndef SP_TRAIN_AGREE_H
#define SP_TRAIN_AGREE_H

#include "train/trainer.h"

/* False if all ranks passed 0 as err; otherwise the first rank that did not prints the line that
 * was held (sp_error_hold). All call it. */
bool sp_train_disagree(int rank, int err);

/* The first checks that all ranks were given the same options; the second, that they read the
 * same model, data and weights. All ranks call them. 0, or -EINVAL on ranks that differ from
 * rank 0. */
int sp_train_agree_settings(struct sp_trainer *t);
int sp_train_agree_inputs(struct sp_trainer *t);

#endif
