/* For `train --resume DIR` alone: gives the run that continues the options of the saved run. */
#ifndef SP_TRAIN_RESTORE_H
#define SP_TRAIN_RESTORE_H

#include "starpipe/trainer.h"
#include <stdbool.h>

/*
 * Sets in *cfg, whose `resume` names the run, the options that the resumed step keeps. Relative
 * paths are relative to where the run was started. `goes_on`: if the step is the newest of the
 * run's own directory, this also takes over the files that the run wrote (--save, --log, --trace),
 * with --save as the directory that the step was found in. The texts live as long as the program.
 * 0, or -errno after one line.
 */
int sp_train_restore(struct sp_train_config *cfg, bool goes_on);

#endif
