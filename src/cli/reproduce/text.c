/* A table for each experiment: a line a cell, published and simulated, how far apart they are. */
#include "cli/reproduce/paper.h"
#include <stdio.h>
#include <string.h>

static int width_of(const struct sp_paper *paper, const struct sp_cell *first)
{
    int most = 0;

    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *c = &paper->cells[i];
        int n = (int)(strlen(c->row) + strlen(c->column)) + 2;

        if (c->experiment == first->experiment && !sp_cell_is_claim(c) && n > most)
            most = n;
    }
    return most;
}

static void print_cell(const struct sp_cell *c, int width)
{
    const struct sp_cell_words words = sp_cell_words(c);
    char name[256];

    snprintf(name, sizeof name, "%s, %s", c->row, c->column);
    printf("  %-*s  %9s %10s %10s %9s  %s%s%s\n", width, name, c->relation ? c->relation : "",
           words.published, words.simulated, words.off, c->unit, c->note[0] ? ": " : "", c->note);
}

static void print_claim(const struct sp_cell *c)
{
    printf("  \"%s\" (%s): %s%s%s\n", c->row, c->column,
           c->simulated.kind == SP_VALUE_NONE ? "not simulated"
           : c->simulated.number > 0          ? "holds"
                                              : "does not hold",
           c->note[0] ? ": " : "", c->note);
}

static void print_unpublished(const struct sp_paper *paper)
{
    const char *id = "";

    for (int i = 0; i < paper->n_more; i++) {
        const struct sp_unpublished *u = &paper->more[i];
        char name[128];

        if (strcmp(id, u->id))
            printf("\n%s, of which no number is published\n", u->id);
        id = u->id;
        snprintf(name, sizeof name, "%s, %s", u->row, u->column);
        printf("  %-40s %10.6g  %s\n", name, u->simulated, u->unit);
    }
}

int sp_paper_text(const struct sp_paper *paper)
{
    const struct sp_summary *s = &paper->summary;
    const json_t *last = NULL;
    int width = 0;

    printf("%s\n", sp_title(paper->root));
    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *c = &paper->cells[i];

        if (c->experiment != last) {
            width = width_of(paper, c);
            printf("\n%s: %s\n", c->id, sp_title(c->experiment));
            if (!sp_cell_is_claim(c))
                printf("  %-*s  %9s %10s %10s %9s\n", width, "", "", "published", "simulated",
                       "off by");
        }
        last = c->experiment;
        if (sp_cell_is_claim(c))
            print_claim(c);
        else
            print_cell(c, width);
    }
    print_unpublished(paper);
    printf("\n%d cells, %d simulated; ahead the same system in %d of %d comparisons; ", s->cells,
           s->simulated, s->winners_right, s->winners);
    if (s->verdicts)
        printf("out of memory or not as published in %d of %d runs; ", s->verdicts_right,
               s->verdicts);
    if (s->claims)
        printf("%d of %d claims hold; ", s->claims_right, s->claims);
    printf("off by %.1f %% in the mean, %.0f %% at worst", 100 * s->mean_error,
           100 * s->worst_error);
    if (s->worst_error > 0)
        printf(" (%s: %s, %s)", paper->cells[s->worst].id, paper->cells[s->worst].row,
               paper->cells[s->worst].column);
    putchar('\n');
    return 0;
}
