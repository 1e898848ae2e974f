/* What --trace writes of a step. */
#ifndef SP_CLI_TRACE_H
#define SP_CLI_TRACE_H

#include "trace/analysis/waits.h"
#include "train/trainer.h"

/*
 * DIR/trace.json, the record of the step; DIR/predicted.json, what was predicted of it; DIR/measured.svg,
 * DIR/expected.svg as the schedule would have it, and both in DIR/trace.html. 0 or -errno.
 */
int sp_trace_write(const struct sp_trainer *t, const struct sp_waits *step);

#endif
