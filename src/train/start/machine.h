/* The described machine of a run, which its times are predicted with. */
#ifndef SP_TRAIN_MACHINE_H
#define SP_TRAIN_MACHINE_H

#include "plan/predict.h"
#include "train/trainer.h"

/*
 * Finds the machine of --hardware; or the one that `starpipe calibrate` described in the cache for
 * this machine; or a named one like the devices that the run computes on. All ranks call it, and
 * get rank 0's. 0, or -errno after one line.
 */
int sp_train_find_machine(struct sp_trainer *t);

/* Loads rank 0's machine, with its figures for all numbers of threads: as described, or as the
 * run measured it. 0, or -errno after one line. */
int sp_train_load_machine(const struct sp_trainer *t, struct sp_machine *machine);
/* True if nothing describes the machine that the run computes on: neither --hardware nor a file
 * of calibrate in the cache. */
bool sp_train_machine_is_unknown(const struct sp_trainer *t);

/* True if it is a named machine that nobody asked for. */
bool sp_train_machine_is_assumed(const struct sp_trainer *t);

/* True if predictions are for the workers and processes that the run has here. */
bool sp_train_predicts_workers(const struct sp_trainer *t);

/* The worker of each stage, [stages], and behind these the process of each; to be freed. NULL without memory. */
int *sp_train_stage_workers(const struct sp_trainer *t);

/* Predicts a step of the run: on the workers and processes that it has here if the machine's
 * devices are CPUs, otherwise with a device for each stage. 0 or -ENOMEM. */
int sp_train_predict(const struct sp_trainer *t, struct sp_prediction *prediction);
/* The same with ops that take as long as in a step of the run. */
int sp_train_predict_again(const struct sp_trainer *t, const struct sp_step_report *step,
                           struct sp_prediction *prediction);

#endif
