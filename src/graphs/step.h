/* One training step: all ops in order, the gradient norm, the update, the reports. */
#ifndef SP_STEP_H
#define SP_STEP_H

#include "graphs/report/report.h"
#include "policies/lowering/action.h"

/*
 * Runs step k of the data: forward and backward of every micro-batch. Afterwards the gradients
 * are whole (replicas summed) and the norm is known; weights are not changed. The report is
 * complete on rank 0. Data that cannot be read ends all processes, after one line on stderr; NULL:
 * the tokens stay as they are.
 */
void sp_step_gradients(struct sp_graph *g, const struct sp_data *data, uint64_t k,
                       struct sp_step_report *report);

/* Clips, updates the weights and clears the gradients. */
void sp_step_update(struct sp_graph *g, const struct sp_update *hp, struct sp_step_report *report);

/*
 * The same in pieces, for steps without a barrier between them (Qi et al. 2023, "Zero Bubble
 * Pipeline Parallelism", section 4: post-validation of the optimizer). Step k is begun with the
 * forwards that come before its first backward, and submitted to its end by sp_step_rest; then its
 * update is submitted `beside` the state before it, step k+1 is begun, and sp_step_finish waits for
 * the report of step k. If the norm says that the gradient had to be clipped, sp_step_undo forgets
 * the forwards of step k+1 and the update, bit for bit; the update is submitted again, and step k+1
 * begun again. All processes make the same calls.
 */
void sp_step_begin(struct sp_graph *g, const struct sp_data *data, uint64_t k);
void sp_step_rest(struct sp_graph *g, const struct sp_update *ahead, bool beside);
void sp_step_update_submit(struct sp_graph *g, const struct sp_update *hp, bool beside);
void sp_step_finish(struct sp_graph *g, struct sp_step_report *report);
void sp_step_undo(struct sp_graph *g);

/* Of it, for who lowers a step once for several graphs: what comes before the first action, an action, as far as it is this
 * process's, and what comes after the last one. */
void sp_step_prepare(struct sp_graph *g, const struct sp_data *data, uint64_t k);
void sp_step_act(struct sp_graph *g, const struct sp_action *a);
void sp_step_conclude(struct sp_graph *g);

/*
 * For families: the gradient of a block is whole although the step goes on. If sp_step_rest was given
 * the update, `ahead`, the block gets it at once, so that the next step can begin with it;
 * sp_step_update_submit then makes the others.
 */
void sp_step_close(struct sp_graph *g, struct sp_stage *st, struct sp_block *b);

/* The same where every micro-batch updates: the gradient so far is used up, and the weights are in `into` from here
 * on, a buffer of their own or theirs. */
void sp_step_apply(struct sp_graph *g, struct sp_stage *st, struct sp_block *b,
                   const struct sp_update *hp, struct sp_tensor *into);

#endif
