/* The order of 1F1B, which other schedules place, update or balance otherwise. */
#ifndef SP_ONEF1B_H
#define SP_ONEF1B_H

#include "starpipe/schedule.h"

/* Appends the ops of one stage: min(p-1-stage, m) forwards, then one forward, one backward. */
void sp_1f1b_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);

/* Its makespan, that of GPipe and PipeDream too: (m+p-1)(f+b+w), HelixPipe equation 1; in n slices,
 * and v chunks that run in step, (m + (p-1)/(nv))(f+b+w). */
double sp_1f1b_closed_form(const struct sp_layout *lay, double f, double b, double w);

#endif
