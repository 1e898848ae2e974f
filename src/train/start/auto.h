/* --schedule auto in a run: what it measures first, what it chooses, and how it reports that. */
#ifndef SP_TRAIN_AUTO_H
#define SP_TRAIN_AUTO_H

#include "train/trainer.h"

/* Call it on all ranks before the machine is found: measures the machine if nothing describes
 * it, chooses a layout on rank 0, and makes all ranks take it over as if it had been given. 0,
 * or -EINVAL or -ENOMEM on all after one line. */
int sp_train_choose_layout(struct sp_trainer *t);

/* Chooses a layout for the devices of the run, among those that the options leave open, as
 * predicted on `machine`. */
int sp_train_choose_on(const struct sp_trainer *t, const struct sp_machine *machine,
                       double within_s, struct sp_auto_choice *choice,
                       struct sp_auto_contenders *contenders);

/* Takes a choice over in t->cfg. 0 or -EINVAL after one line. */
int sp_train_take_choice(struct sp_trainer *t, const struct sp_auto_choice *choice);

/* Makes the current layout the one that checkpoints of the run record. 0 or -ENOMEM. */
int sp_train_keep_layout(struct sp_trainer *t);

/* Prints the choice and its reason in two lines, once nothing is refused any more. */
void sp_train_tell_choice(struct sp_trainer *t);

void sp_train_forget_choice(struct sp_trainer *t);

#endif
