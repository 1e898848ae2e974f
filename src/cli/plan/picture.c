/*
 * The parts of the page (html.c) for a page that draws timelines by itself, on one line of JSON:
 *   title            a sentence: the model, the machine, the step
 *   complete         false: the search has not ended, or was ended early
 *   recommended      the number of a row of `shown`, from 1; null: see advice
 *   advice           why none is recommended; null
 *   shown, others    the layouts that have a section there, and the rest; null: there are none
 *     order          a sentence about them
 *     common         what all of them share, in words; may be ""
 *     columns[]      {name, legend (null: the name explains itself), left (it has text)}
 *     rows[]         {cells[]: a text for each column; frontier: no layout is faster in no more
 *                    memory; layout: as the form JSON has it; lines: its command, to paste}
 *   chart            step time against memory, as an SVG element with its legend; it links to rows
 *                    as #layout-NUMBER and #other-RANK
 */
#include "cli/plan/ranking.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include <errno.h>
#include <stdlib.h>

/* ---- text that prints itself */

struct text {
    char *bytes;
    size_t n;
    FILE *out; /* NULL: no memory */
};

static void text_begin(struct text *t)
{
    *t = (struct text){0};
    t->out = open_memstream(&t->bytes, &t->n);
}

/* NULL: no memory. */
static json_t *text_end(struct text *t)
{
    bool lost = !t->out || fclose(t->out);
    json_t *string = lost ? NULL : sp_utf8_json(t->bytes);

    free(t->bytes);
    return string;
}

static json_t *sentence(const struct sp_ranking *r,
                        void (*print)(const struct sp_ranking *r, FILE *out))
{
    struct text t;

    text_begin(&t);
    if (t.out)
        print(r, t.out);
    return text_end(&t);
}

static json_t *lines_of(const struct sp_ranking *r, const struct sp_found *f)
{
    char *command = sp_ranking_command(r, f);
    struct text t;

    if (!command)
        return NULL;
    text_begin(&t);
    if (t.out)
        sp_command_wrap(command, 0, t.out);
    free(command);
    return text_end(&t);
}

static json_t *chart_of(const struct sp_plan_page *page)
{
    struct text t;

    text_begin(&t);
    if (t.out)
        sp_plan_page_chart(page, t.out);
    return text_end(&t);
}

/* ---- tables */

static json_t *columns_of(const struct sp_table *table)
{
    json_t *columns = json_array();

    for (int k = 0; k < table->n; k++)
        json_array_append_new(columns,
                              json_pack("{s:s,s:s?,s:b}", "name", table->column[k]->name, "legend",
                                        table->column[k]->legend, "left", table->column[k]->left));
    return columns;
}

static json_t *row_of(const struct sp_plan_page *page, const struct sp_table *table, int i)
{
    const struct sp_ranking *r = &page->shown;
    const struct sp_found *f = &r->all[i];
    json_t *cells = json_array();
    char cell[SP_CELL];

    for (int k = 0; k < table->n; k++) {
        sp_cell_print(r, table->column[k], f, cell);
        json_array_append_new(cells, sp_utf8_json(cell));
    }
    return json_pack("{s:o,s:b,s:o,s:o}", "cells", cells, "frontier", page->frontier[i], "layout",
                     sp_ranking_layout_json(r, f), "lines", lines_of(r, f));
}

/* A table of one part of the page; null: it has no rows. */
static json_t *table_of(const struct sp_plan_page *page, const struct sp_ranking *part)
{
    json_t *rows = json_array();
    struct sp_table table;

    if (!part->rows) {
        json_decref(rows);
        return json_null();
    }
    sp_table_choose(part, &table);
    for (int k = 0; rows && k < part->rows; k++)
        if (json_array_append_new(rows, row_of(page, &table, part->row[k]))) {
            json_decref(rows);
            rows = NULL;
        }
    return json_pack("{s:o,s:s,s:o,s:o}", "order", sentence(part, sp_ranking_order), "common",
                     table.common, "columns", columns_of(&table), "rows", rows);
}

int sp_ranking_picture(const struct sp_ranking *r, FILE *out)
{
    struct sp_plan_page *page = calloc(1, sizeof *page);
    const struct sp_found *best = r->recommended;
    json_t *root = NULL;

    if (page) {
        sp_plan_page_choose(r, page);
        root = json_pack(
            "{s:o,s:b,s:o,s:s?,s:o,s:o,s:o}", "title", sentence(r, sp_ranking_title), "complete",
            !r->stopped, "recommended",
            best ? json_integer(sp_plan_page_number(page, (int)(best - r->all))) : json_null(),
            "advice", best ? NULL : sp_ranking_advice(r), "shown", table_of(page, &page->shown),
            "others", table_of(page, &page->others), "chart", chart_of(page));
    }
    free(page);
    if (!root)
        return sp_error(ENOMEM, "plan: no memory for the layouts of %s", r->names.model);
    json_dumpf(root, out, JSON_COMPACT);
    putc('\n', out);
    json_decref(root);
    return 0;
}
