/*
 * Writes a traced run as four tables (CSV, one line of names first), for R, Python or a
 * spreadsheet; times in ms:
 *
 *   tasks.csv        job,rank,worker,stage,step,pass,micro_batch,slice,layer,part,start_ms,end_ms
 *   messages.csv     message,from_rank,to_rank,from_stage,to_stage,tag,bytes,tensor,start_ms,end_ms
 *   memory.csv       rank,node,ms,mb: memory that StarPU has allocated on a node, at each change
 *   dependencies.csv id,after: jobs and messages, each with one that it waited for
 *
 * An empty field means none. The stages of a message are those of the task that it follows and of a
 * task that reads it.
 */
#ifndef SP_FXT_TABLES_H
#define SP_FXT_TABLES_H

#include "trace/fxt/dependencies.h"
#include "trace/fxt/paje.h"

/* The input of the tables. */
struct sp_fxt_trace {
    const struct sp_paje *paje; /* rewritten */
    const struct sp_fxt_tasks *tasks;
    const struct sp_fxt_messages *messages;
    const struct sp_fxt_dependencies *dependencies; /* all */
    double zero_ns;
};

/* 0 or -errno after one line. */
int sp_fxt_tables_write(const struct sp_fxt_trace *t, const char *dir);

#endif
