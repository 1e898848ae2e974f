/* The tables of a run with --report. */
#ifndef SP_CLI_SUMMARY_H
#define SP_CLI_SUMMARY_H

#include "cli/report/report.h"
#include "cli/train/typical_step.h"
#include "train/trainer.h"

/* From t->report, that of a typical step, and the report of its record: bubble measured beside bubble expected and what
 * makes the difference, memory. */
void sp_print_summary(const struct sp_trainer *t, const struct sp_typical *typical,
                      const struct sp_report *step);

#endif
