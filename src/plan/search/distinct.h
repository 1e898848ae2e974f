/* Chooses layouts of different ideas from a ranking that has many variants of each. Pure. */
#ifndef SP_DISTINCT_H
#define SP_DISTINCT_H

#include "plan/search/found.h"

/*
 * Chooses `most` of the ranked all[n], or all: indices into chosen[most], ascending. Returns how
 * many.
 *
 * It takes the first and the one that sp_search_recommended names. Then, best first, as long as
 * there is room, it takes the best of each grid (stages, devices of a stage, pipelines) in up to
 * half of the rows; of each family of schedules (the name up to ':'); of each family on each grid;
 * and any. Layouts that do not fit are chosen in the same way after all that fit.
 */
int sp_found_distinct(const struct sp_found *all, int n, int *chosen, int most);

#endif
