/* The last three lines of a run. */
#ifndef SP_CLI_CLOSING_H
#define SP_CLI_CLOSING_H

#include "cli/report/report.h"
#include "cli/train/typical_step.h"
#include "train/trainer.h"

struct sp_closing {
    const struct sp_typical *typical;
    const struct sp_report *step; /* of the typical step */
    double loss;                  /* of the last step */
    double seconds;               /* the run's duration, from its first step */
};

/* Prints the result, where the time went, and what to look at next. */
void sp_print_closing(const struct sp_trainer *t, const struct sp_closing *c);

#endif
