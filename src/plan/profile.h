/*
 * Measures the costs of a model's layers on this machine: runs the tasks of training on a model of
 * two layers. The times go to the planners of src/plan/.
 */
#ifndef SP_PROFILE_H
#define SP_PROFILE_H

#include "graphs/graph.h"
#include "plan/cost/layer_costs.h"

/*
 * Measures one micro-batch on worker 0 of `place`, in a started StarPU under a policy of
 * starpipe/order.h, while no graph exists: position counters are reset before and after. No message
 * is sent, so that one process of many can measure while the others wait. From `like` it takes
 * params, batch, seq, mlp_rows, head_rows, ready and seed, but not plan and recompute.
 *
 * Times are lower quartiles of task times, without StarPU's overhead between tasks. A step that
 * recomputes groups of K layers also runs the last product of K-1 of them, which recompute_us does
 * not contain.
 *
 * 0, or -errno after one line on stderr; *costs is set on success.
 */
int sp_profile_layers(const struct sp_graph_config *like, const struct sp_placement *place,
                      struct sp_layer_costs *costs);

/*
 * Bytes that measuring needs: weights and gradients of the tables and two layers, activations of
 * one micro-batch in two layers that keep everything, the workspace.
 */
int64_t sp_profile_bytes(const struct sp_shape *sh);

/*
 * Time of one message of `bytes` from rank 0 to rank `peer`: half of a round trip. Both ranks call
 * it, and others may, in a started StarPU; the result is valid on rank 0. 0 if there is no such
 * rank.
 */
double sp_profile_comm_us(const struct sp_world *world, int peer, size_t bytes);

#endif
