/* Checks and opens the files of a run, before it starts. */
#ifndef SP_TRAIN_FILES_H
#define SP_TRAIN_FILES_H

#include "train/trainer.h"

/* On rank 0: refuses an output that would destroy an input, another output, or a file that is no
 * log. 0 or -errno. */
int sp_train_check_files(const struct sp_trainer *t);
/* On rank 0 of a run that saves: opens t->companions, the files to be saved with the model. They
 * come from the resumed step, or else from the model's directory, without logs and without files
 * that the run reads or writes. 0 or -errno. */
int sp_train_open_companions(struct sp_trainer *t);
/* Checks that the outputs can be written. 0 or -errno. */
int sp_train_check_output(const struct sp_trainer *t);
/* On rank 0, when nothing is refused any more: makes the directories of the outputs, t->made.
 * sp_train_claim makes that of --save. 0 or -errno. */
int sp_train_make_dirs(struct sp_trainer *t);
/* Takes the log, so that no other run writes it. 0 or -errno. */
int sp_train_claim_log(struct sp_trainer *t);

/* The names of the pictures in cfg.trace; NULL ends them. */
extern const char *const sp_train_pictures[];

#endif
