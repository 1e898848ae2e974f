/*
 * --schedule auto, once steps are timed. The run begins in the layout that is predicted to be
 * fastest. Then its contenders, which are predicted to be nearly as fast, have a few steps each, as
 * long as changes take no more than --auto-within. After SP_AUTO_STEPS steps the run reports how
 * far off its prediction was. At the rates that it measured (plan/rates_fit.h) a layout that was
 * not tried may be predicted to be faster than all others by more than SP_AUTO_GAIN; then that has
 * a turn as well. At last the run settles on the layout whose step was the shortest. All steps are
 * steps of the training: weights and moments are carried over in files, as f32, and the samples of
 * a step stay the same.
 */
#ifndef SP_TRAIN_REPLAN_H
#define SP_TRAIN_REPLAN_H

#include "train/trainer.h"

enum { SP_AUTO_STEPS = 20 };
#define SP_AUTO_GAIN 0.05

/* Notes the time of the last step. It does so on rank 0 with --schedule auto, and otherwise
 * nothing. 0 or -ENOMEM. */
int sp_train_look(struct sp_trainer *t);

/* True if the next step begins with a decision about the layout. */
bool sp_train_replans(const struct sp_trainer *t);
/* All ranks call it, between steps. 0 or -errno after one line. */
int sp_train_replan(struct sp_trainer *t);

/* ---- reorder.c: searches an order again, at the costs that the run measured --------------------- */

/* True if the next step begins with a new search. */
bool sp_train_reorders(const struct sp_trainer *t);
/* Rank 0 searches, and all take the order over. All call it, between steps. 0 or -errno. */
int sp_train_reorder(struct sp_trainer *t);

#endif
