/* Layouts of different ideas from a ranking, which has many variants of each. Pure. */
#ifndef SP_DISTINCT_H
#define SP_DISTINCT_H

#include "plan/search/found.h"

/*
 * Chooses `most` of the ranked all[n], or all: numbers into chosen[most], ascending. Returns how many.
 *
 * The first is chosen, and the one that sp_search_recommended names. Then, the best ones first, as long as there is
 * room: the best of each grid (stages, devices of a stage, pipelines) in up to half of the rows; of each family of schedules
 * (the name up to ':'); of each family on each grid; any. Layouts that do not fit are chosen in the same way once all
 * that fit are.
 */
int sp_found_distinct(const struct sp_found *all, int n, int *chosen, int most);

#endif
