/* The forms of `starpipe plan`: what a search found, as text, JSON and a page. */
#ifndef SP_RANKING_H
#define SP_RANKING_H

#include "plan/search/search.h"
#include <jansson.h>
#include <stdio.h>

/* The most layouts that a search keeps, each with another schedule or grid. */
enum { SP_RANKING_MOST = 512 };

struct sp_ranking {
    const struct sp_search *want;
    struct sp_found_names names;        /* as given */
    const struct sp_found *all;         /* [n] the best first */
    const struct sp_found *recommended; /* one of them; NULL: train runs none that fits */
    bool stopped;                       /* interrupted before the search was done */
    int top;                            /* so many layouts are shown, if there are as many */
    int row[SP_RANKING_MOST], n, rows;  /* indices of the layouts to show, of different ideas */
};

/* Takes all[n] of a search, which has found one at least: sets rows and recommended too. */
void sp_ranking_take(struct sp_ranking *r, const struct sp_found *all, int n);

/* Each returns 0, or -ENOMEM after one line; write errors are left in ferror(out). */
int sp_ranking_text(const struct sp_ranking *r, FILE *out);
int sp_ranking_json(const struct sp_ranking *r, FILE *out);
int sp_ranking_html(const struct sp_ranking *r, FILE *out);
int sp_ranking_picture(const struct sp_ranking *r, FILE *out);

/* A layout as the JSON form has it; NULL: no memory. */
json_t *sp_ranking_layout_json(const struct sp_ranking *r, const struct sp_found *f);

/* "gpt3-1.3b on 1 node of 8 devices (h100-ib): a step of 16 sequences of 32768 tokens, in bf16" */
void sp_ranking_title(const struct sp_ranking *r, FILE *out);

/* "12 of 126 layouts, a choice of schedules and grids, sorted by tokens/s (0.1 % apart is
 * equal)" */
void sp_ranking_order(const struct sp_ranking *r, FILE *out);

/* Why no layout is recommended, and what may help: one sentence without its full stop. */
const char *sp_ranking_advice(const struct sp_ranking *r);

/* ---- commands (command.c) */

/* The command that trains with a layout, names quoted for a shell; the caller frees it. NULL: no
 * memory. */
char *sp_ranking_command(const struct sp_ranking *r, const struct sp_found *f);

/* Prints that command in lines to paste, broken before options and indented by `indent` columns;
 * the reader fills in the file of tokens. */
void sp_command_wrap(const char *command, int indent, FILE *out);

/* ---- columns of tables (columns.c) */

enum { SP_CELL = 320, SP_COLUMNS = 20 };

enum sp_column_what {
    SP_COLUMN_INT, /* the int at `at` in struct sp_found */
    SP_COLUMN_SCHEDULE,
    SP_COLUMN_MICRO_BATCHES,
    SP_COLUMN_RECOMPUTE,
    SP_COLUMN_OFFLOAD,
    SP_COLUMN_VOCABULARY,
    SP_COLUMN_LAYERS,
    SP_COLUMN_DTYPE,
    SP_COLUMN_STEP,
    SP_COLUMN_TOKENS,
    SP_COLUMN_BUBBLE,
    SP_COLUMN_MEMORY,
    SP_COLUMN_REMARK
};

struct sp_column {
    const char *name;
    const char *legend;  /* NULL: the name explains itself */
    const char *neutral; /* the cell that carries no information if all rows have it; NULL: none */
    bool left;           /* text; otherwise a figure, aligned to the right */
    bool kept;           /* shown even if all rows have the same */
    enum sp_column_what what;
    size_t at;
};

/* Prints the cell of a layout in a column. */
void sp_cell_print(const struct sp_ranking *r, const struct sp_column *c, const struct sp_found *f,
                   char cell[SP_CELL]);

/*
 * The columns in which the rows of a ranking differ, and those marked `kept`. A ranking of one row
 * has all columns that are not neutral. `common` says in words what all rows share: "recompute
 * none, offload none".
 */
struct sp_table {
    int n;
    const struct sp_column *column[SP_COLUMNS];
    char common[SP_CELL];
};
void sp_table_choose(const struct sp_ranking *r, struct sp_table *table);

/* "35.0 s", "501 ms"; "46.1 GiB", "310 MiB"; "12345", "0.125": at least three digits. */
void sp_cell_duration(double ms, char cell[SP_CELL]);
void sp_cell_bytes(int64_t bytes, char cell[SP_CELL]);
void sp_cell_figure(double v, char cell[SP_CELL]);

/* ---- the page (html.c, chart.c), and its parts for a page that asks (picture.c) */

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

/* Gives a section to the rows that were asked for and to those on the frontier; the others get
 * none. */
void sp_plan_page_choose(const struct sp_ranking *r, struct sp_plan_page *page);

/* Number of the section of all[i]; 0: it has none. */
int sp_plan_page_number(const struct sp_plan_page *page, int i);

/* Draws step time against memory, one point for each layout, as an SVG element with its legend. */
void sp_plan_page_chart(const struct sp_plan_page *page, FILE *out);

#endif
