/* --schedule auto in a run: what it measures first, its choice, and what it says of that. */
#ifndef SP_TRAIN_AUTO_H
#define SP_TRAIN_AUTO_H

#include "train/trainer.h"

/* Before the machine is found: measures it where nothing describes it, chooses a layout on rank 0, and has all ranks take
 * it over as if it had been given. All ranks call it. 0, or -EINVAL or -ENOMEM on all after one line. */
int sp_train_choose_layout(struct sp_trainer *t);

/* What the devices of the run are, and what is open, for a choice on such a machine. */
int sp_train_choose_on(const struct sp_trainer *t, const struct sp_machine *machine,
                       double within_s, struct sp_auto_choice *choice,
                       struct sp_auto_contenders *contenders);

/* Takes a choice over in t->cfg. 0 or -EINVAL after one line. */
int sp_train_take_choice(struct sp_trainer *t, const struct sp_auto_choice *choice);

/* Makes the layout that the run has what its checkpoints keep. 0 or -ENOMEM. */
int sp_train_keep_layout(struct sp_trainer *t);

/* Once nothing is refused: says the choice and its reason in two lines. */
void sp_train_tell_choice(struct sp_trainer *t);

void sp_train_forget_choice(struct sp_trainer *t);

#endif
