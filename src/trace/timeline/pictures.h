/* The record of a step as a picture (trace/gantt.h). */
#ifndef SP_TIMELINE_PICTURES_H
#define SP_TIMELINE_PICTURES_H

#include "trace/gantt.h"
#include "trace/timeline/timeline.h"

/* Its ops as bars, and its messages between processes, if they took time. Title and subtitle are the
 * caller's. To be destroyed. 0 or -ENOMEM. */
int sp_gantt_of_timeline(const struct sp_timeline *t, struct sp_gantt *g);

#endif
