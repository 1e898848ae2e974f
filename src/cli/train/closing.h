/* The last three lines of a run. */
#ifndef SP_CLI_CLOSING_H
#define SP_CLI_CLOSING_H

#include "cli/report/report.h"
#include "cli/train/typical_step.h"
#include "train/trainer.h"

struct sp_closing {
    const struct sp_typical *typical;
    const struct sp_report *step; /* that one's */
    double loss;                  /* of the last step */
    double seconds;               /* that the run took, from its first step */
};

/* What came out, where the time went, what to look at next. */
void sp_print_closing(const struct sp_trainer *t, const struct sp_closing *c);

#endif
