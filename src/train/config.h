/* The settings of the trainer as a table: one list for the command, for programs, and for
 * checkpoints. */
#ifndef SP_TRAIN_CONFIG_H
#define SP_TRAIN_CONFIG_H

#include "train/options.h"

#define SP_TRAIN_DEVICES "auto|cpu|cuda"

enum { SP_TRAIN_OPTIONS = 76 }; /* entries, with the one that ends the table */

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

/* ---- run/lr_schedule.c: the learning rate of every step --------------------------------------- */

enum sp_lr_shape { SP_LR_CONSTANT, SP_LR_COSINE, SP_LR_LINEAR, SP_LR_WSD };

/* The shapes of --lr-schedule, in the order of the enum. */
#define SP_LR_SHAPES "constant|cosine|linear|wsd"

struct sp_lr_schedule {
    enum sp_lr_shape shape;
    double lr, min; /* highest and last learning rate */
    int warmup;     /* steps of linear rise: step k has lr (k+1) / warmup */
    int decay;      /* steps of the fall from lr to min; 0: the default of sp_lr_decay */
    int steps;      /* of the run */
};

/*
 * Steps of the fall. Cosine and linear fall from the end of the warm-up, by default until the last
 * step; wsd (warm-up, stable, decay) over the last steps, by default a tenth of them all.
 */
int sp_lr_decay(const struct sp_lr_schedule *s);

/*
 * Step k, counted from 0. With x = (k - first step of the fall) / decay, at most 1:
 *
 *   cosine       min + (lr - min) (1 + cos(pi x)) / 2
 *   linear, wsd  min + (lr - min) (1 - x)
 */
double sp_lr_at(const struct sp_lr_schedule *s, int step);

/* Refuses schedules that make no sense: 0, or -EINVAL after one line. */
int sp_lr_check(const struct sp_lr_schedule *s);

/* The schedule of the run. */
struct sp_lr_schedule sp_train_lr(const struct sp_train_config *cfg);

#endif
