/* The files that commands write of a step: its record, and pictures. */
#ifndef SP_CLI_RECORD_H
#define SP_CLI_RECORD_H

#include "trace/gantt.h"
#include "trace/timeline/json.h"

/* Writes a record into an existing directory. 0, or -errno after one line. */
int sp_record_write(const struct sp_timeline *t, const char *dir, const char *name);

/* Writes two pictures of one schedule: what[0].svg, what[1].svg, and trace.html with both on one
 * axis. 0, or -errno after one line. */
int sp_record_pictures(const struct sp_schedule_def *def, const struct sp_gantt g[2],
                       const char *const what[2], const char *dir);

#endif
