/* The described machine of a run: what its times are predicted with. */
#ifndef SP_TRAIN_MACHINE_H
#define SP_TRAIN_MACHINE_H

#include "plan/predict.h"
#include "train/trainer.h"

/*
 * That of --hardware; or what `starpipe calibrate` left of this machine in the cache; or a named one like
 * what the run computes on. All ranks call it, and have rank 0's. 0, or -errno after one line.
 */
int sp_train_find_machine(struct sp_trainer *t);

/* The machine of rank 0, with its figures of all numbers of threads: described, or what the run measured. 0, or -errno
 * after one line. */
int sp_train_load_machine(const struct sp_trainer *t, struct sp_machine *machine);
/* Whether nothing describes what the run computes on, neither --hardware nor what calibrate left in the cache. */
bool sp_train_machine_is_unknown(const struct sp_trainer *t);

/* Whether it is a named one that nobody asked for. */
bool sp_train_machine_is_assumed(const struct sp_trainer *t);

/* Whether predictions are of the workers and processes that the run has here. */
bool sp_train_predicts_workers(const struct sp_trainer *t);

/* These, by stage. */
void sp_train_stage_workers(const struct sp_trainer *t, int *worker, int *process);

/* A step of the run: on the workers and processes that it has here where the machine's devices are CPUs, on
 * a device a stage elsewhere. 0 or -ENOMEM. */
int sp_train_predict(const struct sp_trainer *t, struct sp_prediction *prediction);

#endif
