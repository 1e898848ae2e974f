/* Advice that would make the steps of a run shorter. */
#ifndef SP_CLI_ADVICE_H
#define SP_CLI_ADVICE_H

#include "cli/report/report.h"
#include "train/trainer.h"

enum { SP_ADVICE = 512 };

/*
 * Writes one sentence without its full stop, with how much faster steps would be. It comes from the
 * report of a typical step, and from plays of other layouts at the costs that t->report measured.
 * "": the figures support none.
 */
void sp_advise(const struct sp_trainer *t, const struct sp_report *r, char text[SP_ADVICE]);

#endif
