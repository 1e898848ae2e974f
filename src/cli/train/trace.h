/* Pictures of a step. */
#ifndef SP_CLI_TRACE_H
#define SP_CLI_TRACE_H

#include "train/trainer.h"

struct sp_gantt;

/* DIR/measured.svg from t->report, DIR/expected.svg as the schedule would have it, and both in
 * DIR/trace.html. 0 or -errno. */
int sp_trace_write(const struct sp_trainer *t);
/* The ops of t->report as they ran. 0 or -ENOMEM. */
int sp_trace_gantt(const struct sp_trainer *t, struct sp_gantt *g);

#endif
