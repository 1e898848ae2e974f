/*
 * Step time against memory of the fullest device: a point a layout, its colour how many stages, and
 * the frontier as a line of steps. Points are links, so keys reach them; nothing here needs a
 * script. Time is logarithmic: layouts may differ a hundredfold, and a percent is as long
 * everywhere.
 */
#include "cli/plan/ranking.h"
#include "sp_text.h"
#include "trace/escape.h"
#include "trace/gantt.h"
#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 880,
    HEIGHT = 460,
    LEFT = 76,   /* of the plot: times */
    RIGHT = 24,  /* of it */
    TOP = 26,    /* over it: what the limit is */
    BOTTOM = 50, /* under it: bytes */
    COLORS = 8   /* of numbers of stages; page.css has them */
};

/* Milliseconds: a step of less has no logarithm that is worth drawing. */
static const double SHORTEST = 1e-9;

struct chart {
    const struct sp_plan_page *page;
    const struct sp_ranking *r;
    FILE *out;
    double least, most;                    /* log of step times at the bottom and the top */
    double empty, full;                    /* bytes at the left and the right */
    int stages[SP_RANKING_MOST], n_stages; /* that layouts have, ascending */
};

void sp_ranking_frontier(const struct sp_ranking *r, bool *frontier)
{
    for (int i = 0; i < r->n; i++) {
        const struct sp_found *f = &r->all[i];

        frontier[i] = f->fits == r->all[0].fits;
        for (int k = 0; k < r->n && frontier[i]; k++) {
            const struct sp_found *g = &r->all[k];
            bool same = g->step_ms == f->step_ms && g->memory == f->memory;

            if (g->fits == f->fits && g->step_ms <= f->step_ms && g->memory <= f->memory &&
                (!same || k < i))
                frontier[i] = false;
        }
    }
}

static int64_t limit_of(const struct sp_ranking *r)
{
    return r->want->memory ? r->want->memory : r->want->machine->memory_bytes;
}

/* ---- where things are */

static int compare_stages(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void list_stages(struct chart *c)
{
    for (int i = 0; i < c->r->n; i++) {
        int k = 0;

        while (k < c->n_stages && c->stages[k] != c->r->all[i].stages)
            k++;
        if (k == c->n_stages)
            c->stages[c->n_stages++] = c->r->all[i].stages;
    }
    qsort(c->stages, (size_t)c->n_stages, sizeof *c->stages, compare_stages);
}

static int color_of(const struct chart *c, int stages)
{
    int k = 0;

    while (c->stages[k] != stages)
        k++;
    return k % COLORS;
}

/* The memory of a device is in sight, unless all need far less; layouts that need far more stand at
 * the right edge. */
static void find_range(struct chart *c)
{
    double low = INFINITY, high = SHORTEST, least = INFINITY, bytes = 0, room;
    double limit = (double)limit_of(c->r);

    for (int i = 0; i < c->r->n; i++) {
        const struct sp_found *f = &c->r->all[i];

        low = fmin(low, fmax(f->step_ms, SHORTEST));
        high = fmax(high, f->step_ms);
        bytes = fmax(bytes, (double)f->memory);
        least = fmin(least, (double)f->memory);
    }
    room = fmax(0.06 * log(high / low), 0.01);
    c->least = log(low) - room;
    c->most = log(high) + room;
    if (c->r->all[0].fits)
        bytes = fmin(bytes, 1.25 * limit);
    if (limit < 2 * bytes)
        bytes = fmax(bytes, limit);
    least -= 0.1 * (bytes - least);
    c->full = 1.04 * bytes;
    c->empty = least < 0.4 * bytes ? 0 : least; /* where there is much room at the left it is cut */
}

static double x_of(const struct chart *c, double bytes)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * fmin((bytes - c->empty) / (c->full - c->empty), 1);
}

static double y_of(const struct chart *c, double ms)
{
    return TOP +
           (HEIGHT - TOP - BOTTOM) * (c->most - log(fmax(ms, SHORTEST))) / (c->most - c->least);
}

/* ---- what is drawn */

static void draw_line(const struct chart *c, const char *kind, double x, double y, const char *d)
{
    fprintf(c->out, "<path class=\"%s\" d=\"M%.1f %.1f%s\"/>\n", kind, x, y, d);
}

static void draw_label(const struct chart *c, const char *anchor, double x, double y,
                       const char *text)
{
    fprintf(c->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
            text);
}

/* A line across at a time, unless the last label is too near. */
static void draw_time(const struct chart *c, double ms, double *last)
{
    char cell[SP_CELL], across[24];
    double y = y_of(c, ms);

    if (*last - y < 22 || y < TOP)
        return;
    *last = y;
    snprintf(across, sizeof across, "h%d", WIDTH - LEFT - RIGHT);
    draw_line(c, "rule", LEFT, y, across);
    sp_cell_duration(ms, cell);
    draw_label(c, "end", LEFT - 8, y + 4, cell);
}

static void draw_axes(const struct chart *c)
{
    double low = exp(c->least), high = exp(c->most), last = HEIGHT;
    double step = sp_gantt_tick(high - low, 8);
    double unit = c->full < 1 << 28 ? 1 << 20 : 1 << 30; /* bytes */
    double tick = unit * sp_gantt_tick((c->full - c->empty) / unit, 9);
    char text[48];

    for (double ms = ceil(low / step) * step; ms <= high * (1 + 1e-9) && high < 6 * low; ms += step)
        draw_time(c, ms, &last);
    for (double tens = pow(10, floor(log10(low))); high >= 6 * low && tens <= high; tens *= 10)
        for (int k = 1; k < 10; k += k < 3 ? 1 : k == 3 ? 2 : 5)
            if (k * tens >= low && k * tens <= high && k != 3)
                draw_time(c, k * tens, &last);
    for (double at = ceil(c->empty / tick) * tick; at <= c->full; at += tick) {
        double x = x_of(c, at);

        draw_line(c, "tick", x, HEIGHT - BOTTOM, "v5");
        snprintf(text, sizeof text, "%.4g", at / unit);
        draw_label(c, "middle", x, HEIGHT - BOTTOM + 19, text);
    }
    snprintf(text, sizeof text, "h%d", WIDTH - LEFT - RIGHT);
    draw_line(c, "tick", LEFT, HEIGHT - BOTTOM, text);
    snprintf(text, sizeof text, "memory of the fullest device, %s", unit < 1 << 30 ? "MiB" : "GiB");
    draw_label(c, "middle", (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8, text);
    draw_label(c, "start", 4, 13, "time of a step");
}

static void draw_limit(const struct chart *c)
{
    double x = x_of(c, (double)limit_of(c->r));
    char cell[SP_CELL], text[SP_CELL + 32], down[24];

    if ((double)limit_of(c->r) > c->full || (double)limit_of(c->r) < c->empty)
        return;
    snprintf(down, sizeof down, "V%d", HEIGHT - BOTTOM);
    draw_line(c, "limit", x, TOP - 8, down);
    sp_cell_bytes(limit_of(c->r), cell);
    snprintf(text, sizeof text, "a device has %s", cell);
    draw_label(c, "end", x - 6, TOP - 12, text);
}

static int compare_memory(const void *a, const void *b)
{
    const struct sp_found *const *x = a, *const *y = b;

    return (*x)->memory < (*y)->memory ? -1 : (*x)->memory > (*y)->memory;
}

/* Memory buys time to the right of each of its layouts, until the next. */
static void draw_frontier(const struct chart *c)
{
    const struct sp_found *on[SP_RANKING_MOST] = {NULL};
    double end = c->r->all[0].fits ? (double)limit_of(c->r) : c->full;
    int n = 0;

    for (int i = 0; i < c->r->n; i++)
        if (c->page->frontier[i])
            on[n++] = &c->r->all[i];
    qsort(on, (size_t)n, sizeof *on, compare_memory);
    fprintf(c->out, "<path class=\"frontier\" d=\"M%.1f %d", x_of(c, (double)on[0]->memory), TOP);
    for (int i = 0; i < n; i++)
        fprintf(c->out, "V%.1fH%.1f", y_of(c, on[i]->step_ms),
                x_of(c, i + 1 < n ? (double)on[i + 1]->memory : end));
    fputs("\"/>\n", c->out);
}

static void draw_point(const struct chart *c, int i)
{
    const struct sp_found *f = &c->r->all[i];
    double x = x_of(c, (double)f->memory), y = y_of(c, f->step_ms);
    int number = sp_plan_page_number(c->page, i);
    char step[SP_CELL], memory[SP_CELL];

    if (number)
        fprintf(c->out, "<a href=\"#layout-%d\"", number);
    else
        fprintf(c->out, "<a href=\"#other-%d\"", i + 1);
    fprintf(c->out, " class=\"%s g%d%s%s\"><title>", number ? "told" : "other",
            color_of(c, f->stages), f->fits ? "" : " full", c->page->frontier[i] ? " best" : "");
    sp_escape_xml(f->schedule, c->out);
    sp_cell_duration(f->step_ms, step);
    sp_cell_bytes(f->memory, memory);
    fprintf(c->out, ", %s of %s: %s, %s%s</title><circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>",
            SP_COUNT(f->stages, "stage"), SP_COUNT((long long)f->devices * f->context, "device"),
            step, memory, f->fits ? "" : ", does not fit", x, y, number ? "9.5" : "4");
    if (number)
        fprintf(c->out, "<text x=\"%.1f\" y=\"%.1f\">%d</text>", x, y + 3.8, number);
    fputs("</a>\n", c->out);
}

static void write_legend(const struct chart *c)
{
    fputs("<p class=\"colors\">", c->out);
    for (int k = 0; k < c->n_stages; k++)
        fprintf(c->out,
                "<span><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"12\" height=\"12\" "
                "class=\"g%d\" aria-hidden=\"true\"><circle cx=\"6\" cy=\"6\" r=\"5\"/></svg> %s"
                "</span>\n",
                k % COLORS, SP_COUNT(c->stages[k], "stage"));
    fputs("</p>\n", c->out);
}

void sp_plan_page_chart(const struct sp_plan_page *page, FILE *out)
{
    struct chart c = {.page = page, .r = &page->shown, .out = out};

    list_stages(&c);
    find_range(&c);
    fprintf(out,
            "<div class=\"scroll\"><svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" "
            "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"group\" "
            "aria-label=\"step time against memory\">\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_axes(&c);
    draw_limit(&c);
    draw_frontier(&c);
    for (int i = c.r->n - 1; i >= 0;
         i--) /* better ones over others, those with a section over all */
        if (!sp_plan_page_number(page, i))
            draw_point(&c, i);
    for (int i = c.r->n - 1; i >= 0; i--)
        if (sp_plan_page_number(page, i))
            draw_point(&c, i);
    fputs("</svg></div>\n", out);
    write_legend(&c);
}
