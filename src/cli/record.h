/* The files that commands write of a step: its record, and pictures. */
#ifndef SP_CLI_RECORD_H
#define SP_CLI_RECORD_H

#include "trace/gantt.h"
#include "trace/timeline/json.h"

/* Into an existing directory. 0, or -errno after one line. */
int sp_record_write(const struct sp_timeline *t, const char *dir, const char *name);
int sp_record_svg(const struct sp_gantt *g, const char *dir, const char *name);
/* trace.html: two pictures of one schedule on one axis, `first` and `second` saying what they are. */
int sp_record_page(const struct sp_schedule_def *def, const struct sp_gantt g[2], const char *first,
                   const char *second, const char *dir);

#endif
