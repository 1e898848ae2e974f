/* The memory that the stages of a run need. */
#ifndef SP_TRAIN_MEMORY_H
#define SP_TRAIN_MEMORY_H

#include "graphs/count.h"
#include "train/trainer.h"

/* The memory of the stages, [stages], to be freed: with the planned evictions, or without any.
 * NULL after one line: there is no such graph. */
struct sp_memory *sp_train_memory(const struct sp_trainer *t);
/* True if the fullest stage of a plan keeps to --memory-limit without evictions, or if there is
 * no limit. */
bool sp_train_fits(const struct sp_trainer *t, const struct sp_plan *plan);
/* Counts the tensors that stages make and send in the steps of the run, with `processes`
 * processes in a pipeline: count[stages]. 0 or -errno after one line. */
int sp_train_count(const struct sp_trainer *t, int processes, struct sp_count *count);
/* The graph of the run, but for the sink that it is submitted to, and what that can do. */
struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t);
/* Bytes planned for this process. */
int64_t sp_train_planned_bytes(const struct sp_trainer *t);

#endif
