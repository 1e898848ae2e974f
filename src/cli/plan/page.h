/* The page of a ranking: its parts. */
#ifndef SP_PLAN_PAGE_H
#define SP_PLAN_PAGE_H

#include "cli/plan/ranking.h"

/* Layouts with a section of their own are numbered from 1 in the order of the ranking, and have the anchor
 * "layout-NUMBER"; others have "other-RANK". */
struct sp_plan_page {
    struct sp_ranking shown, others; /* rows that have a section; the rest */
    bool frontier[SP_RANKING_MOST];  /* of all: see sp_ranking_frontier */
};

/*
 * Whether each of all[n] is on the frontier of step time and memory: none of those that fit (or of all, where none
 * does) is faster in no more memory, or as fast in less.
 */
void sp_ranking_frontier(const struct sp_ranking *r, bool *frontier);

/* Number of the section of all[i]; 0: it has none. */
int sp_plan_page_number(const struct sp_plan_page *page, int i);

/* Step time against memory, a point a layout, as an SVG element with its legend. */
void sp_plan_page_chart(const struct sp_plan_page *page, FILE *out);

#endif
