/* The parts of a ranking's page. */
#ifndef SP_PLAN_PAGE_H
#define SP_PLAN_PAGE_H

#include "cli/plan/ranking.h"

/* Layouts with a section are numbered from 1 in the order of the ranking and have the anchor
 * "layout-NUMBER"; the others have the anchor "other-RANK". */
struct sp_plan_page {
    struct sp_ranking shown, others; /* rows that have a section; the rest */
    bool frontier[SP_RANKING_MOST];  /* of all: see sp_ranking_frontier */
};

/*
 * Marks the layouts of all[n] on the frontier of step time and memory: no layout is faster in no
 * more memory, or as fast in less. Only layouts that fit compete, or all if none fits.
 */
void sp_ranking_frontier(const struct sp_ranking *r, bool *frontier);

/* Number of the section of all[i]; 0: it has none. */
int sp_plan_page_number(const struct sp_plan_page *page, int i);

/* Draws step time against memory, one point for each layout, as an SVG element with its legend. */
void sp_plan_page_chart(const struct sp_plan_page *page, FILE *out);

#endif
