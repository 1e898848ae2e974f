/* The report that the summary and the pictures of a run are made from. */
#ifndef SP_CLI_TYPICAL_H
#define SP_CLI_TYPICAL_H

#include "cli/train/typical_step.h"
#include "train/trainer.h"

/* Reports of steps that may prove typical; on rank 0. */
struct sp_typical_report {
    struct sp_typical typical;
    struct sp_step_report report[SP_TYPICAL_KEPT];
};

/* Remembers that of the step just made, if it may prove to be one. 0 or -ENOMEM. */
int sp_typical_note(struct sp_typical_report *k, const struct sp_trainer *t, int step);
/* The steps to come are of another layout: none of those so far is typical. */
void sp_typical_forget(struct sp_typical_report *k, const struct sp_trainer *t);
/* After the last step: t->report is that of the typical one, and the others are freed. */
void sp_typical_take(struct sp_typical_report *k, struct sp_trainer *t);

#endif
