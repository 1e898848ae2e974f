/* How a search shows how far it is, and is ended early: on a terminal, or on a page. */
#ifndef SP_PLAN_PROGRESS_H
#define SP_PLAN_PROGRESS_H

#include "cli/plan/ranking.h"

/* From here on the search of `want` shows how far it is. `r` has no layouts yet. */
void sp_plan_progress_begin(struct sp_search *want, const struct sp_ranking *r);

/* Ends that. True if the search was ended early, which is then said on standard error. */
bool sp_plan_progress_end(void);

#endif
