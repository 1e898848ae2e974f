/*
 * A self-contained page without a script: the recommended command; a chart of step time against
 * memory in which each layout is a point that links to it; the table; and for each layout in it the
 * command and the timeline of its step, as `show --format svg` draws it. Layouts on the frontier
 * get a section even if they are not among the rows asked for.
 */
#include "src/cli/plan/style.inc"
#include "cli/plan/ranking.h"
#include "plan/predict.h"
#include "plan/search/trial.h"
#include "policies/plan.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "sp_text.h"
#include "trace/escape.h"
#include "trace/gantt.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The most ops of a stage in a picture, if fewer micro-batches can achieve it: narrower bars
 * show little. */
enum { MOST_OPS = 128 };

int sp_plan_page_number(const struct sp_plan_page *page, int i)
{
    for (int k = 0; k < page->shown.rows; k++)
        if (page->shown.row[k] == i)
            return k + 1;
    return 0;
}

void sp_plan_page_choose(const struct sp_ranking *r, struct sp_plan_page *page)
{
    bool told[SP_RANKING_MOST] = {false};

    sp_ranking_frontier(r, page->frontier);
    for (int i = 0; i < r->rows; i++)
        told[r->row[i]] = true;
    page->shown = page->others = *r;
    page->shown.rows = page->others.rows = 0;
    for (int i = 0; i < r->n; i++) {
        struct sp_ranking *its = told[i] || page->frontier[i] ? &page->shown : &page->others;

        its->row[its->rows++] = i;
    }
}

/* ---- text */

typedef void print_text(const struct sp_ranking *r, FILE *out);

/* 0 or -ENOMEM. */
static int put_escaped(const struct sp_ranking *r, print_text *print, FILE *out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    int err = 0;

    if (!memory)
        return -ENOMEM;
    print(r, memory);
    if (fclose(memory))
        err = -ENOMEM;
    else
        sp_escape_xml(text, out);
    free(text);
    return err;
}

/* Prints the command of the only row of a ranking. */
static void print_command(const struct sp_ranking *r, FILE *out)
{
    char *command = sp_ranking_command(r, &r->all[r->row[0]]);

    if (command)
        sp_command_wrap(command, 0, out);
    free(command);
}

static struct sp_ranking one_row(const struct sp_ranking *r, int i)
{
    struct sp_ranking one = *r;

    one.rows = 1;
    one.row[0] = i;
    return one;
}

static int put_command(const struct sp_ranking *r, int i, FILE *out)
{
    struct sp_ranking one = one_row(r, i);
    int err;

    fputs("<pre>", out);
    err = put_escaped(&one, print_command, out);
    fputs("</pre>\n", out);
    return err;
}

/* ---- tables */

static void put_link(const struct sp_plan_page *page, int i, const char *text, FILE *out)
{
    int number = sp_plan_page_number(page, i);

    if (number)
        fprintf(out, "<a href=\"#layout-%d\">%d. ", number, number);
    sp_escape_xml(text, out);
    if (number)
        fputs("</a>", out);
}

/* Puts a row. A layout without a section has its command in the row. 0 or -ENOMEM. */
static int put_row(const struct sp_plan_page *page, const struct sp_ranking *r,
                   const struct sp_table *table, int i, FILE *out)
{
    bool other = !sp_plan_page_number(page, i);
    char cell[SP_CELL];
    int err = 0;

    fputs("<tr", out);
    if (other)
        fprintf(out, " id=\"other-%d\"", i + 1);
    fputs(">", out);
    for (int k = 0; k < table->n; k++) {
        const struct sp_column *c = table->column[k];

        sp_cell_print(r, c, &r->all[i], cell);
        fprintf(out, "<td%s>", c->left ? "" : " class=\"n\"");
        if (!k)
            put_link(page, i, cell, out);
        else
            sp_escape_xml(cell, out);
        fputs("</td>", out);
    }
    if (other) {
        fputs("<td><details><summary>command</summary>", out);
        err = put_command(r, i, out);
        fputs("</details></td>", out);
    }
    fputs("</tr>\n", out);
    return err;
}

static int put_table(const struct sp_plan_page *page, const struct sp_ranking *r, FILE *out)
{
    struct sp_table table;
    int err = 0;

    sp_table_choose(r, &table);
    if (*table.common)
        fprintf(out, "<p>All with %s.</p>\n", table.common);
    fputs("<div class=\"scroll\"><table>\n<tr>", out);
    for (int k = 0; k < table.n; k++)
        fprintf(out, "<th%s>%s</th>", table.column[k]->left ? "" : " class=\"n\"",
                table.column[k]->name);
    if (!sp_plan_page_number(page, r->row[0]))
        fputs("<th></th>", out);
    fputs("</tr>\n", out);
    for (int i = 0; i < r->rows && !err; i++)
        err = put_row(page, r, &table, r->row[i], out);
    fputs("</table></div>\n<p>", out);
    for (int k = 0, n = 0; k < table.n; k++)
        if (table.column[k]->legend)
            fprintf(out, "%s%s", n++ ? "; " : "", table.column[k]->legend);
    fputs(".</p>\n", out);
    return err;
}

/* ---- pictures */

struct picture {
    FILE *out;
    int most_ops; /* of a stage */
    int drawn;    /* micro-batches; 0: there were more ops */
};

static int draw_step(const struct sp_plan *plan, const struct sp_prediction *p, void *data)
{
    struct picture *picture = data;
    struct sp_gantt g;
    int err;

    for (int s = 0; s < plan->layout.stages; s++)
        if (plan->programs[s].n > picture->most_ops)
            return 0;
    err = sp_gantt_from_times(plan, &p->times, &g);
    if (err)
        return err;
    g.unit = "ms";
    err = sp_gantt_add_messages(&g, plan, p);
    if (!err)
        sp_gantt_svg_element(&g, picture->out);
    picture->drawn = plan->layout.micro_batches;
    sp_gantt_destroy(&g);
    return err;
}

/* Half as many micro-batches must still fill the stages. */
static bool can_halve(const struct sp_found *f)
{
    int each = sp_schedule_wants_slices(f->schedule) ? f->slices : 1;

    return f->micro_batches % 2 == 0 && f->micro_batches / 2 * each >= 2 * f->stages;
}

/* Draws the step. While its bars would be too narrow, it halves the micro-batches, as long as
 * they fill the stages and the schedule accepts so few. */
static int put_picture(const struct sp_ranking *r, int i, FILE *out)
{
    struct picture picture = {.out = out, .most_ops = MOST_OPS};
    struct sp_found f = r->all[i];
    int err, whole = f.micro_batches;

    do {
        err = sp_trial_show(r->want, &f, draw_step, &picture);
        if (err == -EINVAL && f.micro_batches < whole) {
            f.micro_batches *= 2;
            picture.most_ops = INT_MAX;
            err = 0;
        } else if (!err && !picture.drawn && can_halve(&f)) {
            f.micro_batches /= 2;
        } else if (!err && !picture.drawn) {
            picture.most_ops = INT_MAX;
        }
    } while (!err && !picture.drawn);
    if (!err && picture.drawn < whole)
        fprintf(out,
                "<figcaption>A step of %s instead of %d, which would be too narrow "
                "here.</figcaption>\n",
                SP_COUNT(picture.drawn, "micro-batch"), whole);
    return err;
}

/* ---- sections */

static void put_figure(const char *name, const char *value, FILE *out)
{
    fprintf(out, "<div><dt>%s</dt><dd>", name);
    sp_escape_xml(value, out);
    fputs("</dd></div>\n", out);
}

static void put_figures(const struct sp_ranking *r, int i, FILE *out)
{
    struct sp_ranking one = one_row(r, i);
    const struct sp_found *f = &r->all[i];
    struct sp_table table;
    char cell[SP_CELL];

    sp_table_choose(&one, &table);
    fputs("<dl class=\"figures\">\n", out);
    for (int k = 1; k < table.n; k++) {
        sp_cell_print(r, table.column[k], f, cell);
        put_figure(*table.column[k]->name ? table.column[k]->name : "remark", cell, out);
    }
    if (f->stall_ms > 0) {
        sp_cell_duration(f->stall_ms, cell);
        put_figure("waiting for what left memory", cell, out);
    }
    if (f->host > 0) {
        sp_cell_bytes(f->host, cell);
        put_figure("main memory of a node for it", cell, out);
    }
    fputs("</dl>\n", out);
}

static int put_section(const struct sp_plan_page *page, int i, FILE *out)
{
    const struct sp_ranking *r = &page->shown;
    int number = sp_plan_page_number(page, i), err;

    fprintf(out, "<section id=\"layout-%d\">\n<h3>%d. ", number, number);
    sp_escape_xml(r->all[i].schedule, out);
    fprintf(out, " on %s%s</h3>\n", SP_COUNT(r->all[i].stages, "stage"),
            page->frontier[i] ? ": on the frontier" : "");
    put_figures(r, i, out);
    err = put_command(r, i, out);
    fputs("<figure class=\"scroll\">", out);
    err = err ? err : put_picture(r, i, out);
    fputs("</figure>\n<p><a href=\"#chart\">Back to all layouts</a></p>\n</section>\n", out);
    return err;
}

static int put_body(const struct sp_ranking *r, const struct sp_plan_page *page, FILE *out)
{
    int err;

    if (r->recommended) {
        int i = (int)(r->recommended - r->all);

        fprintf(out, "<h2>Recommended: <a href=\"#layout-%d\">", sp_plan_page_number(page, i));
        sp_escape_xml(r->recommended->schedule, out);
        fprintf(out, " on %s</a></h2>\n", SP_COUNT(r->recommended->stages, "stage"));
        put_figures(r, i, out);
        err = put_command(r, i, out);
        fputs("<p>Put your tokens in the place of FILE.bin.</p>\n", out);
    } else {
        fputs("<p>", out);
        sp_escape_xml(sp_ranking_advice(r), out);
        fputs(".</p>\n", out);
        err = 0;
    }
    fputs("<h2 id=\"chart\">Time of a step against memory</h2>\n<p>Each point is a layout and "
          "leads to it; numbered ones have a picture below. None is faster in less memory than "
          "those on the line. Hollow ones do not fit.</p>\n",
          out);
    sp_plan_page_chart(page, out);
    fputs("<h2>Layouts</h2>\n<p>", out);
    sp_ranking_order(&page->shown, out);
    fputs(".</p>\n", out);
    err = err ? err : put_table(page, &page->shown, out);
    sp_gantt_svg_shared(out);
    for (int k = 0; k < page->shown.rows && !err; k++)
        err = put_section(page, page->shown.row[k], out);
    if (page->others.rows && !err) {
        fputs("<h2>Other layouts</h2>\n", out);
        err = put_table(page, &page->others, out);
    }
    return err;
}

int sp_ranking_html(const struct sp_ranking *r, FILE *out)
{
    struct sp_plan_page *page = calloc(1, sizeof *page);
    int err = page ? 0 : -ENOMEM;

    if (!err) {
        sp_plan_page_choose(r, page);
        fprintf(out,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                "<style>\n%s</style>\n<title>",
                style);
        err = put_escaped(r, sp_ranking_title, out);
        fputs("</title>\n</head>\n<body>\n<h1>", out);
        err = err ? err : put_escaped(r, sp_ranking_title, out);
        fputs("</h1>\n", out);
        err = err ? err : put_body(r, page, out);
        fputs("</body>\n</html>\n", out);
    }
    free(page);
    return err ? sp_error(-err, "plan: no memory for a page of %s", SP_COUNT(r->n, "layout")) : 0;
}
