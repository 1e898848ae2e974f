/* What the stages of a run hold. */
#ifndef SP_TRAIN_MEMORY_H
#define SP_TRAIN_MEMORY_H

#include "graphs/count.h"
#include "train/trainer.h"

/* What the stages hold, [stages], to be freed: by the plan of what leaves memory, or as if nothing left. NULL after one line:
 * there is no such graph. */
struct sp_memory *sp_train_memory(const struct sp_trainer *t);
/* Whether a plan's fullest stage keeps to --memory-limit, if nothing leaves; without a limit it does. */
bool sp_train_fits(const struct sp_trainer *t, const struct sp_plan *plan);
/* What stages have made, and send, after the steps of the run, in so many processes of a pipeline: count[stages]. 0 or -errno
 * after one line. */
int sp_train_count(const struct sp_trainer *t, int processes, struct sp_count *count);
/* The graph of the run, but for the sink that it is submitted to, and what that can do. */
struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t);
/* Planned for this process, bytes. */
int64_t sp_train_planned_bytes(const struct sp_trainer *t);

#endif
