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
    const struct sp_cell_words words = sp_cell_words(c);

    fputs("| ", stdout);
    put_escaped(c->row);
    fputs(" | ", stdout);
    put_escaped(c->column);
    printf(" | %s%s%s | %s | %s | ", c->relation ? c->relation : "", c->relation ? " " : "",
           words.published, words.simulated, words.off);
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
    const json_t *last = NULL;

    printf("# %s\n\n", sp_title(paper->root));
    sp_summary_print(&paper->summary, ", ");
    putchar('\n');
    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *c = &paper->cells[i];

        if (c->experiment != last)
            printf("\n## %s: %s\n\n| row | column | published | simulated | off by | unit | note "
                   "|\n| --- | --- | ---: | ---: | ---: | --- | --- |\n",
                   c->id, sp_title(c->experiment));
        last = c->experiment;
        put_cell(c);
    }
    put_unpublished(paper);
    return 0;
}
