/* `train --resume DIR` alone: the options that the run was told, for the one that goes on with it. */
#ifndef SP_TRAIN_RESTORE_H
#define SP_TRAIN_RESTORE_H

#include "starpipe/trainer.h"
#include <stdbool.h>

/*
 * Sets in *cfg, whose `resume` names the run, what the step that it goes on from has of the run's options. Paths
 * that are relative are relative to where the run was started. `goes_on`: the files that the run wrote too (--save,
 * --log, --trace), if this is its newest step, --save as the directory that the step was found in. The texts live as
 * long as the program. 0, or -errno after one line.
 */
int sp_train_restore(struct sp_train_config *cfg, bool goes_on);

#endif
