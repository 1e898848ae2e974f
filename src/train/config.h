/* The settings of the trainer as a table: one list for the command, for programs, and for
 * checkpoints. */
#ifndef SP_TRAIN_CONFIG_H
#define SP_TRAIN_CONFIG_H

#include "train/options.h"
#include "train/run/lr_schedule.h"

#define SP_TRAIN_DEVICES "auto|cpu|cuda"

enum { SP_TRAIN_OPTIONS = 73 }; /* entries, with the one that ends the table */

/* The options of `starpipe train`; the value of each is in *cfg. */
void sp_train_options(struct sp_train_config *cfg, struct sp_option options[SP_TRAIN_OPTIONS]);

/* Takes back every setting that would be used by another one which is not set. A continuing run
 * may have inherited it. */
void sp_train_drop_unused(struct sp_train_config *cfg);

/* The role of the option of this name, without dashes. */
enum sp_option_role sp_train_role(const char *name);

/* All settings as lines, see settings.h. `paths` false: files to be read appear as "given",
 * since their paths may differ between processes. To be freed. */
char *sp_train_settings(const struct sp_train_config *cfg, bool paths);

/* Refuses all that can be refused without reading a file, and loads plugins: 0, or -EINVAL after
 * one line. */
int sp_train_config_check(const struct sp_train_config *cfg);

/* The learning rate of the run. */
struct sp_lr_schedule sp_train_lr(const struct sp_train_config *cfg);

#endif
