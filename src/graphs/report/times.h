/* Busy, idle and waiting times of a step, from the records of all stages. */
#ifndef SP_REPORT_TIMES_H
#define SP_REPORT_TIMES_H

#include "graphs/report/report.h"

/* What may leave memory on a stage. */
int sp_report_units(const struct sp_graph *g, int stage);

/* Of every stage, from its ops and messages, and `span_us`; their times count from the first op after it. On the first
 * process of a pipeline. */
void sp_report_add_times(struct sp_graph *g, struct sp_step_report *r);

#endif
