/* Makes the record of a step that was run, or simulated as a run. */
#ifndef SP_TIMELINE_MEASURED_H
#define SP_TIMELINE_MEASURED_H

#include "graphs/report/report.h"
#include "trace/timeline/timeline.h"

/* Makes the record from the report of all stages. terms->process gives the rank of each stage;
 * terms->shape is required; workers come from the reports, not from terms->worker. 0; -ENOMEM;
 * -EINVAL: the report does not match the plan. */
int sp_timeline_of_report(const struct sp_timeline_terms *terms,
                          const struct sp_step_report *report, struct sp_timeline *t);

#endif
