/*
 * Writes and reads the record of a step as a file: JSON in the Trace Event Format, which
 * https://ui.perfetto.dev and chrome://tracing open directly. A process is a rank and a thread a
 * stage; links between ranks have a separate process. Events:
 *
 *   X, category "op"        an op, with all its facts in args (times in the unit of the record)
 *   X, category "message"   a tensor in transit, on the track of its link; inside a process no time
 *   s, t, f                 a flow from the op that sends, over the message, to the op that waits
 *   C                       activations and stashed bytes of each stage, micro-batches alive
 *   M                       names and order of the tracks
 *
 * otherData holds the plan and the totals; a reader needs only that and the X events.
 */
#ifndef SP_TIMELINE_JSON_H
#define SP_TIMELINE_JSON_H

#include "trace/timeline/timeline.h"
#include <stdio.h>

/* Writes the record. 0 or -ENOMEM; write errors are left in ferror(out). */
int sp_timeline_write(const struct sp_timeline *t, FILE *out);

/* Reads a record from a file that sp_timeline_write wrote, or from DIR/trace.json. 0; or -errno
 * after one line that begins with `command`: -EINVAL for a file that is not the record of a
 * step. */
int sp_timeline_load(const char *command, const char *path, struct sp_timeline *t);

#endif
