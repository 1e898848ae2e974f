/* train --dry-run: what would run, and how fast. */
#ifndef SP_CLI_DRY_RUN_H
#define SP_CLI_DRY_RUN_H

#include "train/trainer.h"

/* 0, or -errno after one line. */
int sp_dry_run(const struct sp_trainer *t);

#endif
