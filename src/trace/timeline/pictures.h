/* Turns the record of a step into a picture (trace/gantt.h). */
#ifndef SP_TIMELINE_PICTURES_H
#define SP_TIMELINE_PICTURES_H

#include "trace/gantt.h"
#include "trace/timeline/timeline.h"

/* Draws ops as bars, and messages between processes if they took time. The caller sets title and
 * subtitle, and destroys the picture. 0 or -ENOMEM. */
int sp_gantt_of_timeline(const struct sp_timeline *t, struct sp_gantt *g);

#endif
