/*
 * The record of a step as a file: JSON in the Trace Event Format, which https://ui.perfetto.dev and
 * chrome://tracing open as it is. A process is a rank and a thread a stage; links between ranks have a process
 * of their own. Events:
 *
 *   X, category "op"        an op, with what is known of it in args (times there in the unit of the record)
 *   X, category "message"   a tensor on its way, on the track of its link; inside a process it takes no time
 *   s, t, f                 a flow from the op that sends over the message to the op that waits for it
 *   C                       activations and stashed bytes of each stage, micro-batches alive
 *   M                       names and order of the tracks
 *
 * otherData holds the plan and the totals; what it and the X events say is all that a reader needs.
 */
#ifndef SP_TIMELINE_JSON_H
#define SP_TIMELINE_JSON_H

#include "trace/timeline/timeline.h"
#include <stdio.h>

/* 0 or -ENOMEM; write errors are left in ferror(out). */
int sp_timeline_write(const struct sp_timeline *t, FILE *out);

/* From a file that sp_timeline_write wrote, or DIR/trace.json. 0; or -errno after one line that begins with
 * `command`: -EINVAL for what is no record of a step. */
int sp_timeline_load(const char *command, const char *path, struct sp_timeline *t);

#endif
