/* The changes to the Paje trace of a run, in this order. */
#ifndef SP_FXT_REWRITE_H
#define SP_FXT_REWRITE_H

#include "trace/fxt/messages.h"
#include "trace/fxt/paje.h"

/* The rank of a container such as "2_w0"; 0 for a trace of one process; -1: of all ranks. */
int sp_fxt_container_rank(const char *container, int ranks);

/* Reads the marks of the clocks, and puts all times on one clock. The first event becomes 0 in the
 * trace, which is *zero_ns of rank 0. 0 or -errno after one line. */
int sp_fxt_align(struct sp_paje *p, struct sp_rank_clock *clocks, int ranks, double *zero_ns);

/*
 * Gives task states the columns that StarVZ reads: Value is the kind of task ("F attn"), Params its
 * name, Tag the stage, X the layer, Y the slice, Iteration the step (StarPU's own), Subiteration
 * the micro-batch; norm and update, which have none, come after the last micro-batch. Removes the
 * column Priority, which StarVZ does not know, and the second copy of each state.
 */
void sp_fxt_name_tasks(struct sp_paje *p);

/* Moves workers into containers of the stages that they ran: "0_stage2". Call it after
 * sp_fxt_name_tasks. */
void sp_fxt_group_by_stage(struct sp_paje *p);

/* Adds messages as links, and the state and bandwidth of the threads for messages that follow from
 * them. 0 or -errno after one line. */
int sp_fxt_add_messages(struct sp_paje *p, const struct sp_fxt_messages *m, double zero_ns);

#endif
