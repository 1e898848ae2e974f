/* What a run says at its end. */
#ifndef SP_CLI_SUMMARY_H
#define SP_CLI_SUMMARY_H

#include "cli/train/typical_step.h"
#include "train/trainer.h"

/* From t->report, that of a typical step, and the record of that: bubble measured beside bubble expected and what makes the
 * difference, memory. */
struct sp_waits;
void sp_print_summary(const struct sp_trainer *t, const struct sp_typical *typical,
                      const struct sp_waits *step);

#endif
