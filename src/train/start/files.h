/* The files of a run, before it starts. */
#ifndef SP_TRAIN_FILES_H
#define SP_TRAIN_FILES_H

#include "train/trainer.h"

/* On rank 0: does an output destroy an input or another output, or a file that is no log? 0 or -errno. */
int sp_train_check_files(const struct sp_trainer *t);
/* Opens what is to be saved with the model, t->companions, on rank 0 of a run that saves: of the step that is resumed
 * those of that step, else those of the model's directory, but for files that the run reads or writes, and logs.
 * 0 or -errno. */
int sp_train_open_companions(struct sp_trainer *t);
/* Can the outputs be written? 0 or -errno. */
int sp_train_check_output(const struct sp_trainer *t);
/* On rank 0, when nothing is refused any more: makes the directories of the outputs, t->made, but the one of
 * --save, which sp_train_claim makes. 0 or -errno. */
int sp_train_make_dirs(struct sp_trainer *t);
/* Takes the log, so that no other run writes it: 0 or -errno. */
int sp_train_claim_log(struct sp_trainer *t);

/* The names of the pictures in cfg.trace, up to a NULL. */
extern const char *const sp_train_pictures[];

#endif
