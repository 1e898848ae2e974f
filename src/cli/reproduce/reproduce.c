/*
 * starpipe reproduce: the experiments of a paper once more, published beside simulated.
 */
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/reproduce/paper.h"
#include "cli/result.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- text: a line a cell, published and simulated, how far apart they are */

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

static int print_text(const struct sp_paper *paper)
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

/* ---- JSON */

static json_t *value_json(struct sp_value v)
{
    return v.kind == SP_VALUE_NUMBER ? json_real(v.number)
           : v.kind == SP_VALUE_OOM  ? json_string("OOM")
                                     : json_null();
}

static json_t *cell_json(const struct sp_cell *c)
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:o,s:o,s:s,s:s}", "experiment", c->id, "row", c->row,
                          "column", c->column, "published", value_json(c->published), "simulated",
                          value_json(c->simulated), "unit", c->unit, "note", c->note);

    if (sp_cell_is_claim(c))
        json_object_set_new(o, "claim", json_true());
    if (c->relation) /* of the published value */
        json_object_set_new(o, "relation", json_string(c->relation));
    return o;
}

static int print_json(const struct sp_paper *paper)
{
    const struct sp_summary *s = &paper->summary;
    json_t *cells = json_array(), *more = json_array();
    json_t *root = json_pack(
        "{s:s,s:o,s:o,s:{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f}}", "paper", paper->name, "cells",
        cells, "unpublished", more, "summary", "cells", s->cells, "simulated", s->simulated,
        "winners", s->winners, "winners_right", s->winners_right, "verdicts", s->verdicts,
        "verdicts_right", s->verdicts_right, "claims", s->claims, "claims_right", s->claims_right,
        "mean_error", s->mean_error, "worst_error", s->worst_error);
    int err = root ? 0 : -ENOMEM;

    for (int i = 0; !err && i < paper->n; i++)
        err = json_array_append_new(cells, cell_json(&paper->cells[i])) ? -ENOMEM : 0;
    for (int i = 0; !err && i < paper->n_more; i++) {
        const struct sp_unpublished *u = &paper->more[i];

        err = json_array_append_new(more, json_pack("{s:s,s:s,s:s,s:f,s:s}", "experiment", u->id,
                                                    "row", u->row, "column", u->column, "simulated",
                                                    u->simulated, "unit", u->unit))
                  ? -ENOMEM
                  : 0;
    }
    if (err) {
        json_decref(root);
        return sp_error(ENOMEM, "reproduce: no memory for %d cells", paper->n);
    }
    sp_json_print(root, JSON_REAL_PRECISION(6), stdout);
    return 0;
}

/* ---- Markdown: a section for each experiment with one table, a row a cell */

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

static int print_markdown(const struct sp_paper *paper)
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

/* ---- the command */

static const struct {
    const struct sp_paper *paper;
    const char *summary;
} papers[] = {
    {&sp_paper_helixpipe, "HelixPipe (Zhang et al. 2025): attention of all stages in parallel"},
    {&sp_paper_weipipe, "WeiPipe (Lin et al. 2025): weights travel, activations stay"},
    {&sp_paper_sppo, "SPPO (2025): slices of one sequence, offloaded adaptively"},
    {&sp_paper_survey, "a survey of pipeline schedules: bubbles, memory, communication"},
};
#define FORMATS "text|json|markdown|html"
enum { PAPERS = sizeof papers / sizeof *papers };

static int (*const forms[])(const struct sp_paper *) = {print_text, print_json, print_markdown,
                                                        sp_paper_html};

/* The paper's own command. */
static int run_paper(int i, int argc, char **argv)
{
    struct sp_paper paper = *papers[i].paper;
    struct sp_result result = {0};
    int ret;
    bool vary = false;
    const struct sp_option varied =
        SP_OPTION("assumptions", FLAG, vary,
                  .help = "also what becomes of the tables under other assumptions",
                  .topic = SP_TOPIC_OUTPUT);
    struct sp_option options[] = {SP_RESULT_OPTIONS(result, FORMATS), {0}, {0}};

    if (paper.assumptions)
        options[sizeof options / sizeof *options - 2] = varied;

    ret = sp_options_parse(options, papers[i].summary, argc, argv);
    if (ret)
        return SP_OPTIONS_EXIT(ret);
    ret = sp_paper_run(&paper, vary);
    ret = ret ? ret : sp_result_begin(argv[0], result.output, 0);
    ret = ret ? ret : forms[result.format](&paper);
    sp_paper_destroy(&paper);
    return ret ? 1 : 0;
}

int sp_cmd_reproduce(int argc, char **argv)
{
    struct sp_subcommand sub[PAPERS];
    const struct sp_subcommands c = {
        .command = "reproduce",
        .what = "paper",
        .operand = "PAPER",
        .options = "[--format " FORMATS "]",
        .summary = "Re-runs the experiments of a paper in simulation, published beside simulated.",
        .joint = ", for ",
        .help = "the options of a paper",
        .sub = sub,
        .n = PAPERS,
        .run = run_paper,
    };

    for (int i = 0; i < PAPERS; i++)
        sub[i] = (struct sp_subcommand){papers[i].paper->name, papers[i].summary};
    return sp_subcommands_run(&c, argc, argv);
}
