/* A section for each experiment with one table: a row a cell. */
#include "cli/reproduce/paper.h"
#include <stdio.h>
#include <string.h>

/* Text in a cell of a table. */
static void put_escaped(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\%c" : "%c", *text);
}

static void put_cell(const struct sp_cell *c)
{
    char published[32], simulated[32];
    double off = sp_cell_error(c);

    fputs("| ", stdout);
    put_escaped(c->row);
    fputs(" | ", stdout);
    put_escaped(c->column);
    printf(" | %s%s%s | %s | ", c->relation ? c->relation : "", c->relation ? " " : "",
           sp_value_print(c->published, published), sp_value_print(c->simulated, simulated));
    if (off >= 0)
        printf("%.1f %%", 100 * off);
    fputs(" | ", stdout);
    put_escaped(c->unit);
    fputs(" | ", stdout);
    put_escaped(c->note);
    puts(" |");
}

static void put_unpublished(const struct sp_paper *paper)
{
    const char *id = "";

    for (int i = 0; i < paper->n_more; i++) {
        const struct sp_unpublished *u = &paper->more[i];

        if (strcmp(id, u->id))
            printf("\n## %s, of which no number is published\n\n| row | column | simulated | unit "
                   "|\n| --- | --- | ---: | --- |\n",
                   u->id);
        id = u->id;
        printf("| %s | %s | %.6g | %s |\n", u->row, u->column, u->simulated, u->unit);
    }
}

int sp_paper_markdown(const struct sp_paper *paper)
{
    const struct sp_summary *s = &paper->summary;
    const json_t *last = NULL;

    printf("# %s\n\n", json_string_value(json_object_get(paper->root, "title")));
    printf("%d cells, %d simulated. The same system is ahead in %d of %d comparisons", s->cells,
           s->simulated, s->winners_right, s->winners);
    if (s->verdicts)
        printf(", a run goes out of memory or not as published in %d of %d", s->verdicts_right,
               s->verdicts);
    if (s->claims)
        printf(", %d of %d claims hold", s->claims_right, s->claims);
    printf(". Off by %.1f %% in the mean.\n", 100 * s->mean_error);
    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *c = &paper->cells[i];

        if (c->experiment != last)
            printf("\n## %s: %s\n\n| row | column | published | simulated | off by | unit | note "
                   "|\n| --- | --- | ---: | ---: | ---: | --- | --- |\n",
                   c->id, json_string_value(json_object_get(c->experiment, "title")));
        last = c->experiment;
        put_cell(c);
    }
    put_unpublished(paper);
    return 0;
}
