/* The command line of `starpipe train`. */
#ifndef SP_TRAIN_ARGS_H
#define SP_TRAIN_ARGS_H

#include "starpipe/trainer.h"

/* The configuration that it asks for, not checked as a whole. 0, 1 (help printed) or -EINVAL. */
int sp_train_parse(int argc, char **argv, struct sp_train_config *cfg);

#endif
