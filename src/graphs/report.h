/* What every stage measured, brought together on rank 0, and the norm brought to every rank. */
#ifndef SP_REPORT_H
#define SP_REPORT_H

#include "graphs/step.h"

/* After the step's tasks ended, on every rank. Loss and norm are set on every rank. */
void sp_report_gather(struct sp_graph *g, struct sp_step_report *report);

#endif
