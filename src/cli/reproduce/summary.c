/* How near the simulation comes to what a paper published. */
#include "cli/reproduce/paper.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_number(struct sp_value v)
{
    return v.kind == SP_VALUE_NUMBER;
}

/* A speedup of 20 % is a ratio of 1.2. */
static bool is_speedup(const struct sp_cell *c)
{
    return !strcmp(c->what, "speedup");
}

/* A layout among others: it is the same or another. */
static bool is_choice(const struct sp_cell *c)
{
    return !strcmp(c->what, "choice");
}

static bool in_percent(const struct sp_cell *c)
{
    return c->unit[0] == '%';
}

double sp_cell_error(const struct sp_cell *c)
{
    double p = c->published.number, s = c->simulated.number, of = fabs(p);

    if (sp_cell_is_claim(c) || is_choice(c) || !is_number(c->published) || !is_number(c->simulated))
        return -1;
    if (c->relation &&
        ((strstr(c->relation, "least") && s >= p) || (strstr(c->relation, "more") && s > p) ||
         (strstr(c->relation, "most") && s <= p) || (strstr(c->relation, "less") && s < p)))
        return 0;
    if (in_percent(c)) /* of points: of the ratio that they are of */
        of = is_speedup(c) ? 100 + p : of > 0 ? of : 100;
    return fabs(s - p) / (of > 0 ? of : 1);
}

/* ---- winners */

double sp_value_worth(struct sp_value v)
{
    return is_number(v) ? v.number : -INFINITY;
}

/* Rows of systems: the one with the highest throughput. */
static void compare_row(const struct sp_cell *cells, int n, struct sp_summary *s)
{
    int published = 0, simulated = 0, numbers = 0;

    for (int i = 0; i < n; i++) {
        numbers += is_number(cells[i].published) && cells[i].simulated.kind != SP_VALUE_NONE;
        if (sp_value_worth(cells[i].published) > sp_value_worth(cells[published].published))
            published = i;
        if (sp_value_worth(cells[i].simulated) > sp_value_worth(cells[simulated].simulated))
            simulated = i;
    }
    if (numbers < 2)
        return;
    s->winners++;
    s->winners_right += published == simulated;
}

/* Rows of a layout: whether all of it is the same. */
static void compare_choice(const struct sp_cell *cells, int n, struct sp_summary *s)
{
    bool same = true;

    for (int i = 0; i < n; i++)
        same &=
            is_number(cells[i].simulated) && cells[i].simulated.number == cells[i].published.number;
    s->winners++;
    s->winners_right += same;
}

/* A speedup: whether there is one. */
static void compare_speedup(const struct sp_cell *c, struct sp_summary *s)
{
    double none = in_percent(c) ? 0 : 1;

    if (!is_number(c->published) || !is_number(c->simulated))
        return;
    s->winners++;
    s->winners_right += (c->published.number > none) == (c->simulated.number > none);
}

int sp_paper_row(const struct sp_paper *paper, int first)
{
    int n = first;

    while (n < paper->n && paper->cells[n].experiment == paper->cells[first].experiment &&
           !strcmp(paper->cells[n].row, paper->cells[first].row))
        n++;
    return n - first;
}

static void add_error(const struct sp_paper *paper, int i, struct sp_summary *s)
{
    double error = sp_cell_error(&paper->cells[i]);

    if (error < 0)
        return;
    s->compared++;
    s->mean_error += error;
    if (error > s->worst_error) {
        s->worst_error = error;
        s->worst = i;
    }
}

void sp_paper_summarize(struct sp_paper *paper)
{
    struct sp_summary *s = &paper->summary;

    *s = (struct sp_summary){.cells = paper->n};
    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *c = &paper->cells[i];

        s->simulated += c->simulated.kind != SP_VALUE_NONE;
        add_error(paper, i, s);
        if (sp_cell_is_claim(c) && is_number(c->simulated)) {
            s->claims++;
            s->claims_right += c->simulated.number > 0;
        }
        if (is_speedup(c))
            compare_speedup(c, s);
        if (!strcmp(c->what, "throughput") && c->simulated.kind != SP_VALUE_NONE) {
            s->verdicts++;
            s->verdicts_right +=
                (c->published.kind == SP_VALUE_OOM) == (c->simulated.kind == SP_VALUE_OOM);
        }
    }
    for (int i = 0; i < paper->n; i += sp_paper_row(paper, i)) {
        if (!strcmp(paper->cells[i].what, "throughput"))
            compare_row(&paper->cells[i], sp_paper_row(paper, i), s);
        if (is_choice(&paper->cells[i]))
            compare_choice(&paper->cells[i], sp_paper_row(paper, i), s);
    }
    if (s->compared)
        s->mean_error /= s->compared;
}

void sp_summary_print(const struct sp_summary *s, const char *between)
{
    printf("%d cells, %d simulated. The same system is ahead in %d of %d comparisons", s->cells,
           s->simulated, s->winners_right, s->winners);
    if (s->verdicts)
        printf("%sa run goes out of memory or not as published in %d of %d", between,
               s->verdicts_right, s->verdicts);
    if (s->claims)
        printf("%s%d of %d claims hold", between, s->claims_right, s->claims);
    printf(". Off by %.1f %% in the mean.", 100 * s->mean_error);
}
