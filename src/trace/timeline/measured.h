/* The record of a step that was run, or simulated as a run is. */
#ifndef SP_TIMELINE_MEASURED_H
#define SP_TIMELINE_MEASURED_H

#include "graphs/report/report.h"
#include "trace/timeline/timeline.h"

/* From the report of all stages. terms->process says where each stage ran, terms->shape must be there;
 * terms->worker is not read: reports tell. 0; -ENOMEM; -EINVAL: the report is not one of the plan. */
int sp_timeline_of_report(const struct sp_timeline_terms *terms,
                          const struct sp_step_report *report, struct sp_timeline *t);

#endif
