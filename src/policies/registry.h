/* The schedules: one X-macro table of the built-in ones, plus what plugins add. */
#ifndef SP_REGISTRY_H
#define SP_REGISTRY_H

#include "starpipe/schedule.h"

#define SP_SCHEDULES(X) X(naive) X(gpipe) X(1f1b)

/* NULL if there is none; a suffix ":..." of the name is ignored. */
const struct sp_schedule_def *sp_schedule_find(const char *name);
/* The i-th schedule, NULL past the end. */
const struct sp_schedule_def *sp_schedule_at(int i);

#endif
