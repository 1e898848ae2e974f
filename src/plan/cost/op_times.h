/* The times of a plan's ops on a machine. Pure. */
#ifndef SP_OP_TIMES_H
#define SP_OP_TIMES_H

#include "offload/eviction.h"
#include "plan/cost/part_times.h"
#include "policies/plan.h"

/* Milliseconds of every op, indexed by the id that its family gives it, as `by_op` of struct
 * sp_costs; the second of two ops that overlap takes what it adds to the first one. The caller frees the array. NULL: no memory. */
double *sp_op_times(const struct sp_plan *plan, const struct sp_shape *sh,
                    const struct sp_op_terms *terms);

/* The same without communication between the devices of a stage: computation alone. */
double *sp_op_times_alone(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms);

/* The part of each op's time that it spends on recomputing before it needs a message of another
 * stage, as `again_by_op` of struct sp_costs. The caller frees the array; NULL: no memory. */
double *sp_op_times_again(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms);

/* The rates of a stage's tier on a machine (a GPU's copies, a CPU's disk); and the request of a
 * stage that has `limit` bytes, 0: no limit. */
struct sp_tier_rates sp_offload_tier(const struct sp_machine *machine, int devices);

/* Copies a machine, whose links take no time then. */
void sp_machine_cut_links(const struct sp_machine *from, struct sp_machine *m);

/*
 * The seconds that a stage's optimizer takes beside GPUs if its state is in main memory. Either
 * `state` crosses the bus each way and the GPU updates; or gradients go down to cores, which read
 * and write their memory in `adamw`, and weights come up. All cores of a node read and write so many
 * bytes a second for one device; at the rate `even` both ways take as long (INFINITY: at none).
 */
struct sp_update_ways {
    double state, on_gpu;
    double gradients, adamw, weights, on_cores;
    double rate, even;
};
struct sp_update_ways sp_update_ways(const struct sp_plan *plan, const struct sp_shape *sh,
                                     const struct sp_op_terms *terms, int stage);
/* The choice of --optimizer-device: auto takes cores if the slowest stage updates sooner there, and
 * main memory has room. False on a machine without GPUs, and if no state is evicted. */
bool sp_update_is_on_cores(const struct sp_plan *plan, const struct sp_shape *sh,
                           const struct sp_op_terms *terms, enum sp_update_device wanted);

/* Milliseconds of the optimizer on the slowest stage. */
double sp_update_times(const struct sp_plan *plan, const struct sp_shape *sh,
                       const struct sp_op_terms *terms);

/* Milliseconds until all pipelines have summed their gradients and, if they share the update, have
 * gathered the updated weights, on the slowest stage. Nothing is hidden behind the last backwards
 * or first forwards. 0 for one pipeline. sp_share_time takes the numbers of gradients and weights of
 * one device (struct sp_shared_parameters). */
double sp_share_time(const struct sp_shape *sh, const struct sp_op_terms *terms, double gradients,
                     double weights);
double sp_share_times(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms);

#endif
