/* The changes to the Paje trace of a run, in this order, and the tables of the run. */
#ifndef SP_FXT_REWRITE_H
#define SP_FXT_REWRITE_H

#include "trace/fxt/traced_run.h"
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

/* The input of the tables. */
struct sp_fxt_trace {
    const struct sp_paje *paje; /* rewritten */
    const struct sp_fxt_tasks *tasks;
    const struct sp_fxt_messages *messages;
    const struct sp_fxt_dependencies *dependencies; /* all */
    double zero_ns;
};

/*
 * Writes a traced run as tables (CSV, one line of names first), for R, Python or a spreadsheet;
 * times in ms:
 *
 *   entities.csv     Parent,Name,Type,Nature: the containers of the Paje trace, for StarVZ
 *   tasks.csv        job,rank,worker,stage,step,pass,micro_batch,slice,layer,part,start_ms,end_ms
 *   messages.csv     message,from_rank,to_rank,from_stage,to_stage,tag,bytes,tensor,start_ms,end_ms
 *   memory.csv       rank,node,ms,mb: memory that StarPU has allocated on a node, at each change
 *   dependencies.csv id,after: jobs and messages, each with one that it waited for
 *
 * An empty field means none. The stages of a message are those of the task that it follows and of a
 * task that reads it. 0 or -errno after one line.
 */
int sp_fxt_tables_write(const struct sp_fxt_trace *t, const char *dir);

#endif
