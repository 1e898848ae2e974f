/* A search that shows how far it is, and that Ctrl-C ends early. */
#ifndef SP_PLAN_PROGRESS_H
#define SP_PLAN_PROGRESS_H

#include "plan/search/search.h"

/* From here on SIGINT ends the search with what it has; a second one ends the program. On a terminal, standard error has
 * a line of the layouts tried and the best of them. */
void sp_plan_progress_begin(struct sp_search *want);

/* Ends that; whether the search was ended early, which is then told on standard error. */
bool sp_plan_progress_end(void);

#endif
