/* The files that --trace writes for a step. */
#ifndef SP_CLI_TRACE_H
#define SP_CLI_TRACE_H

#include "trace/analysis/waits.h"
#include "train/trainer.h"

/*
 * Writes DIR/trace.json, the record of the step; DIR/predicted.json, its prediction;
 * DIR/measured.svg; DIR/expected.svg, the step as the schedule would have it; DIR/trace.html with
 * both pictures. 0 or -errno.
 */
int sp_trace_write(const struct sp_trainer *t, const struct sp_waits *step);

#endif
