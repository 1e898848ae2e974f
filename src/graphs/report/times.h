/* Busy, idle and waiting times of a step, from the records of all stages. */
#ifndef SP_REPORT_TIMES_H
#define SP_REPORT_TIMES_H

#include "graphs/report/report.h"

/* The number of units that may be evicted on a stage. */
int sp_report_units(const struct sp_graph *g, int stage);

/* Computes `span_us`, and the times of every stage from its ops and messages; makes their times
 * relative to the step's first op. Runs on rank 0. */
void sp_report_add_times(struct sp_graph *g, struct sp_step_report *r);

#endif
