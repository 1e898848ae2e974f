/* The choice of cores or GPUs, and everything that GPUs need. */
#ifndef SP_TRAIN_DEVICE_H
#define SP_TRAIN_DEVICE_H

#include "train/trainer.h"

/* How many GPUs the run may take; 0: its stages will be on cores. */
int sp_train_find_gpus(const struct sp_trainer *t);
/* True if the run has GPUs; a dry run with --hardware, if that machine has. */
bool sp_train_plans_gpus(const struct sp_trainer *t);
/* Before stages are placed: the bytes that a GPU has for a stage; 0: stages will be on cores, or
 * the bytes are not known. */
int64_t sp_train_expect_gpus(const struct sp_trainer *t);
/* Bytes of a GPU of this process for tensors and workspaces, whatever the plan; 0: not known. */
int64_t sp_train_gpu_has(const struct sp_trainer *t);
/* --logit-rows, or else as many as suit a GPU if stages will be on one; 0: as many as suit
 * cores. */
int sp_train_head_rows(const struct sp_trainer *t);
/* --device: places stages on GPUs, if GPUs are wanted and there. 0, or -errno after one line. */
int sp_train_choose_device(struct sp_trainer *t);
/* Checks that the stages of this process fit the memory that its GPUs have free. 0 or -errno. */
int sp_train_check_gpus(struct sp_trainer *t);
/* Before StarPU starts: sets how it uses GPUs. 0 or -ENOMEM after one line. */
int sp_train_prepare_gpus(struct sp_trainer *t);
/* True if tasks may end for StarPU before their kernels do (sinks/starpu/cuda.h). */
bool sp_train_runs_ahead(const struct sp_trainer *t);
/* Bytes that this process plans to take on its GPUs: sp_train_planned_bytes, and the kernels'
 * workspaces. */
int64_t sp_train_gpu_bytes(const struct sp_trainer *t);
/* After it started: sets up the kernels, and --transport. 0 or -errno after one line. */
int sp_train_start_gpus(const struct sp_trainer *t);
/* After it ended: frees the memory of its buffers. */
void sp_train_end_gpus(void);

#endif
