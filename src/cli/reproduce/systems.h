/*
 * Sums over the parts of a layer; and systems that papers compare with and that no schedule of ours
 * is: what a step takes of each, by formula, from the operations, bytes and links of the same
 * machines.
 */
#ifndef SP_REPRODUCE_SYSTEMS_H
#define SP_REPRODUCE_SYSTEMS_H

#include "cli/reproduce/run.h"
#include "plan/cost/part_times.h"

/* Seconds of a layer: its forward, its backward, and what its backward computes again. */
double sp_layer_forward_s(const struct sp_part_times *t);
double sp_layer_backward_s(const struct sp_part_times *t);
double sp_layer_again_s(const struct sp_part_times *t, enum sp_recompute recompute);

/* Bytes that a layer keeps for its backward. */
double sp_layer_kept_bytes(const struct sp_shape *sh, enum sp_recompute recompute);

/* Sums over the devices of a tensor-parallel stage, a layer and direction: after attention's output
 * product and after the MLP's last one (Megatron-LM, Shoeybi et al. 2019, section 3). */
enum { SP_TENSOR_PARALLEL_SUMS = 2 };

/*
 * ZeRO-3 of DeepSpeed (Rajbhandari et al. 2020, section 5.3): devices n, each with whole layers of
 * its own micro-batches and 1/n of every parameter. Before its forward, and again before its
 * backward, a layer's parameters are gathered, and afterwards its gradients scattered; each of
 * these sends (n-1)/n of P parameters over every link of a ring, whose slowest link is that between
 * nodes:
 *
 *   T = m (t_F + t_R + t_B + 3 (n-1)/n 2P / B) + t_update
 *
 * Nothing of it is hidden behind computation: with `stages` = n of the run, m = micro_batches / n
 * each. If `context` devices share each sequence (DeepSpeed-Ulysses), so many have a micro-batch
 * together.
 */
int sp_zero3(const struct sp_run *run, struct sp_run_result *result);

#endif
