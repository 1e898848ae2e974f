/* One training step: all ops in order, the gradient norm, the update, the reports. */
#ifndef SP_STEP_H
#define SP_STEP_H

#include "graphs/report/report.h"
#include "policies/lowering/action.h"

/*
 * Runs step k of the data: forward and backward of every micro-batch. Afterwards the gradients are
 * complete (replicas summed) and the norm is known; weights are not changed. The report is complete
 * on rank 0. If data cannot be read, all processes end after one line on stderr. NULL: the tokens
 * stay as they are.
 */
void sp_step_gradients(struct sp_graph *g, const struct sp_data *data, uint64_t k,
                       struct sp_step_report *report);

/* Clips, updates the weights and clears the gradients. */
void sp_step_update(struct sp_graph *g, const struct sp_update *hp, struct sp_step_report *report);

/*
 * The same in pieces, for steps without a barrier between them (Qi et al. 2023, "Zero Bubble
 * Pipeline Parallelism", section 4: post-validation of the optimizer). sp_step_begin submits the
 * forwards of step k that come before its first backward; sp_step_rest submits the rest. Then the
 * update of step k is submitted, with a copy of the state before it (`beside`), step k+1 begins,
 * and sp_step_finish waits for the report of step k. If the norm says that the gradient had to be
 * clipped, sp_step_undo undoes the forwards of step k+1 and the update, bit for bit; then the
 * update is submitted again, and step k+1 begins again. All processes make the same calls.
 */
void sp_step_begin(struct sp_graph *g, const struct sp_data *data, uint64_t k);
void sp_step_rest(struct sp_graph *g, const struct sp_update *ahead, bool beside);
void sp_step_update_submit(struct sp_graph *g, const struct sp_update *hp, bool beside);
void sp_step_finish(struct sp_graph *g, struct sp_step_report *report);
void sp_step_undo(struct sp_graph *g);

/* The pieces of a step for a caller that lowers it once for several graphs: the work before the
 * first action, one action if it is this process's, and the work after the last action. */
void sp_step_prepare(struct sp_graph *g, const struct sp_data *data, uint64_t k);
void sp_step_act(struct sp_graph *g, const struct sp_action *a);
void sp_step_conclude(struct sp_graph *g);

/*
 * For families: the gradient of a block is complete although the step goes on. If sp_step_rest was
 * given the update, `ahead`, the block gets it at once, so that the next step can begin with it;
 * sp_step_update_submit then updates the other blocks.
 */
void sp_step_close(struct sp_graph *g, struct sp_stage *st, struct sp_block *b);

/* The same if every batch updates within the step: consumes the gradient so far, and puts the
 * updated weights in `into`, which is the current buffer or another one. */
void sp_step_apply(struct sp_graph *g, struct sp_stage *st, struct sp_block *b,
                   const struct sp_update *hp, struct sp_tensor *into);

/* The matrices of a block whose gradients need not be cleared for a step (sp_task_overwrites): its
 * products are the first to add to them. */
unsigned sp_block_restarts(const struct sp_graph *g, const struct sp_block *b);

#endif
