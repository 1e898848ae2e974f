/*
 * The Gantt picture as SVG: no scripts, no fonts or files from outside, so that it can be put in
 * a page or a paper as it is. Forward blue, backward orange, weight gradient green; micro-batches
 * cycle through eight shades, so that one can be followed down the stages and back.
 */
#include "trace/escape.h"
#include "trace/gantt.h"
#include <math.h>
#include <string.h>

#define LEFT 84   /* of the time axis: stage names */
#define RIGHT 158 /* of the time axis: bubble and peak */
#define TOP 92    /* of the first row: title, legend */
#define BOTTOM 56 /* under the last row: axis */
#define ROW 34    /* row pitch */
#define BAR 26    /* bar height */
#define SHADES 8
#define DIGIT 7    /* width of a figure in a bar, 11 px */
#define LETTER 6.4 /* mean width of a letter, 12 px */

static const struct {
    const char *name;
    double hue, saturation, dark, light; /* of micro-batches 0 and SHADES-1 */
} style[SP_BAR_KINDS] = {
    [SP_BAR_F] = {"forward", 212, .68, .43, .74},
    [SP_BAR_B] = {"backward", 26, .86, .49, .75},
    [SP_BAR_W] = {"weight gradient", 150, .42, .36, .66},
    [SP_BAR_R] = {"recompute", 275, .38, .48, .74},
    [SP_BAR_U] = {"update", 0, 0, .35, .35},
    [SP_BAR_C] = {"communication", 340, .45, .66, .66},
};

struct color {
    int r, g, b;
};

static struct color hsl(double h, double s, double l)
{
    double v[3], a = s * fmin(l, 1 - l);
    static const int n[3] = {0, 8, 4};

    for (int i = 0; i < 3; i++) {
        double k = fmod(n[i] + h / 30, 12);

        v[i] = l - a * fmax(-1, fmin(fmin(k - 3, 9 - k), 1));
    }
    return (struct color){(int)lround(255 * v[0]), (int)lround(255 * v[1]),
                          (int)lround(255 * v[2])};
}

/* Neighbouring micro-batches get shades some way apart: 0 3 6 1 4 7 2 5. */
static struct color shade(enum sp_bar_kind kind, int mb)
{
    double at = mb < 0 ? 0 : (double)(mb % SHADES * 3 % SHADES) / (SHADES - 1);

    return hsl(style[kind].hue, style[kind].saturation,
               style[kind].dark + at * (style[kind].light - style[kind].dark));
}

/* White on what is dark to the eye, near black on the rest. */
static const char *ink(struct color c)
{
    return 0.299 * c.r + 0.587 * c.g + 0.114 * c.b < 145 ? "#fff" : "#1b2430";
}

static void text_at(double x, double y, const char *attributes, const char *text, FILE *out)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, *attributes ? " " : "", attributes);
    sp_escape_xml(text, out);
    fputs("</text>\n", out);
}

/* Wide enough for the shortest bars to be seen, within reason. */
static double plot_width(const struct sp_gantt *g)
{
    double shortest = INFINITY, width;

    for (int i = 0; i < g->n; i++) {
        double length = g->bars[i].end - g->bars[i].start;

        if (length > 0 && length < shortest)
            shortest = length;
    }
    width = g->end > 0 && shortest < INFINITY ? 22 * g->end / shortest : 760;
    return fmin(fmax(width, 760), 1400);
}

static void draw_legend(const struct sp_gantt *g, FILE *out)
{
    bool used[SP_BAR_KINDS] = {false}, odd = false, joined = false, exchanges = false;
    const char *number;
    double x = LEFT;

    for (int i = 0; i < g->n; i++) {
        used[g->bars[i].kind] = true;
        odd |= g->bars[i].chunk % 2;
        joined |= g->bars[i].joined;
        exchanges |= g->bars[i].exchange > 0;
    }
    for (int k = 0; k < SP_BAR_KINDS; k++) {
        if (!used[k])
            continue;
        for (int i = 0; i < 4; i++) {
            struct color c = shade((enum sp_bar_kind)k, i);

            fprintf(out,
                    "<rect class=\"key\" x=\"%.1f\" y=\"58\" width=\"9\" height=\"12\" "
                    "fill=\"#%02x%02x%02x\"/>\n",
                    x + 9 * i, c.r, c.g, c.b);
        }
        text_at(x + 42, 68, "class=\"s\"", style[k].name, out);
        x += 42 + LETTER * (double)strlen(style[k].name) + 20;
    }
    fprintf(out,
            "<rect class=\"key\" x=\"%.1f\" y=\"58\" width=\"36\" height=\"12\" "
            "fill=\"url(#idle)\"/>\n",
            x);
    text_at(x + 42, 68, "class=\"s\"", "idle", out);
    x += 42 + 4 * LETTER + 20;
    number = g->parts ? "P block, A attention: micro-batch.layer"
             : odd    ? "number: micro-batch.chunk"
                      : "number: micro-batch";
    text_at(x, 68, "class=\"s\"", number, out);
    x += (double)strlen(number) * LETTER + 12;
    if (odd) {
        fprintf(out,
                "<rect class=\"key\" x=\"%.1f\" y=\"58\" width=\"24\" height=\"12\" "
                "fill=\"url(#odd)\"/>\n",
                x);
        text_at(x + 30, 68, "class=\"s\"", g->parts ? "attention" : "odd chunk", out);
        x += 30 + 9 * LETTER + 20;
    }
    if (joined) {
        fprintf(out, "<rect class=\"unit\" x=\"%.1f\" y=\"58.5\" width=\"24\" height=\"11\"/>\n",
                x);
        text_at(x + 30, 68, "class=\"s\"", "overlapped", out);
        x += 30 + 10 * LETTER + 20;
    }
    if (exchanges) {
        fprintf(out, "<rect class=\"exchange\" x=\"%.1f\" y=\"58\" width=\"24\" height=\"3\"/>\n",
                x);
        text_at(x + 30, 68, "class=\"s\"", "of it, for exchanges", out);
        x += 30 + 20 * LETTER + 20;
    }
    if (g->n_messages > 0) {
        fprintf(out, "<rect class=\"way\" x=\"%.1f\" y=\"63\" width=\"24\" height=\"2.2\"/>\n", x);
        text_at(x + 30, 68, "class=\"s\"", "message on its way", out);
    }
}

/* The label, or its number alone, if it fits. */
static void draw_label(const struct sp_bar *bar, double x, double y, double width, double height,
                       struct color c, FILE *out)
{
    char text[SP_OP_TEXT], attributes[80];
    double length;
    int size;

    snprintf(text, sizeof text, "%s", bar->label);
    if (width < 5.8 * (double)strlen(text) + 2)
        text[strcspn(text, ".")] = 0;
    length = (double)strlen(text);
    if (!*text || width < 5.8 * length + 2)
        return;
    size = width >= DIGIT * length + 5 && height > 14 ? 11 : 9;
    snprintf(attributes, sizeof attributes, "class=\"n\" font-size=\"%d\" fill=\"%s\"", size,
             ink(c));
    text_at(x + width / 2, y + height / 2 + (size == 11 ? 4 : 3), attributes, text, out);
}

static void draw_bar(const struct sp_bar *bar, double scale, FILE *out)
{
    double x = LEFT + bar->start * scale, width = (bar->end - bar->start) * scale;
    double y = TOP + bar->stage * ROW + (ROW - BAR) / 2.0, height = bar->lane ? BAR / 2.0 : BAR;
    struct color c = shade(bar->kind, bar->mb);
    double gap = width > 4 ? 0.6 : 0; /* a thin line between neighbours, not in a crowd */

    y += bar->lane == 2 ? height : 0;
    fprintf(out,
            "<rect class=\"bar\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
            "fill=\"#%02x%02x%02x\"><title>",
            x + gap / 2, y, fmax(width - gap, 0), height, c.r, c.g, c.b);
    sp_escape_xml(bar->name, out);
    fprintf(out, ": %.6g to %.6g", bar->start, bar->end);
    if (bar->exchange > 0)
        fprintf(out, ", %.3g of it for exchanges in the stage", bar->exchange);
    fputs("</title></rect>\n", out);
    if (bar->chunk % 2 && width >= 3)
        fprintf(out,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"url(#odd)\" "
                "pointer-events=\"none\"/>\n",
                x + gap / 2, y, width - gap, height);
    if (bar->exchange * scale >= 0.4)
        fprintf(out,
                "<rect class=\"exchange\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"3\"/>\n",
                x + gap / 2, y, fmin(bar->exchange * scale, width - gap));
    draw_label(bar, x, y, width, height, c, out);
}

/* A line under the bars of the stage that receives. */
static void draw_message(const struct sp_gantt_message *m, double scale, FILE *out)
{
    double y = TOP + m->to * ROW + (ROW + BAR) / 2.0 + 1;

    fprintf(out, "<rect class=\"way\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"2.2\"><title>",
            LEFT + m->sent * scale, y, fmax((m->arrived - m->sent) * scale, 0.4));
    sp_escape_xml(m->name, out);
    fprintf(out, " on its way from stage %d: %.6g to %.6g</title></rect>\n", m->from, m->sent,
            m->arrived);
}

/* A frame around two bars that are one unit. */
static void draw_frame(const struct sp_bar *bar, double scale, FILE *out)
{
    double x = LEFT + bar->start * scale, width = (bar[1].end - bar->start) * scale;

    if (width >= 6)
        fprintf(out, "<rect class=\"unit\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"/>\n",
                x + 0.6, TOP + bar->stage * ROW + (ROW - BAR) / 2.0 + 0.5, width - 1.2, BAR - 1);
}

static void draw_axis(const struct sp_gantt *g, double width, double scale, FILE *out)
{
    double step = sp_gantt_tick(g->end, (int)(width / 70)), y = TOP + g->stages * ROW + 4;
    char text[48];

    fprintf(out, "<g stroke=\"#8792a2\"><path d=\"M%d %.1fh%.1f\"/>\n", LEFT, y, width);
    for (int i = 0; i * step <= g->end * (1 + 1e-9); i++)
        fprintf(out, "<path d=\"M%.2f %.1fv5\"/>\n", LEFT + i * step * scale, y);
    fputs("</g>\n", out);
    for (int i = 0; i * step <= g->end * (1 + 1e-9); i++) {
        snprintf(text, sizeof text, "%.6g", i * step);
        text_at(LEFT + i * step * scale, y + 18, "class=\"s\" text-anchor=\"middle\"", text, out);
    }
    snprintf(text, sizeof text, "time%s%s%s", *g->unit ? " (" : ", in units of the costs", g->unit,
             *g->unit ? ")" : "");
    text_at(LEFT + width / 2, y + 38, "class=\"s\" text-anchor=\"middle\"", text, out);
}

static void draw_stage(const struct sp_gantt *g, int s, double width, FILE *out)
{
    double y = TOP + s * ROW + (ROW - BAR) / 2.0, base = y + BAR / 2.0 + 4;
    char text[48];

    fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"url(#idle)\"/>\n",
            LEFT, y, width, BAR);
    if (g->row)
        snprintf(text, sizeof text, "%s", g->row[s]);
    else
        snprintf(text, sizeof text, "stage %d", s);
    text_at(LEFT - 10, base, "text-anchor=\"end\"", text, out);
    if (g->idle_percent[s] >= 0) {
        snprintf(text, sizeof text, "%.1f %%", g->idle_percent[s]);
        text_at(LEFT + width + 62, base, "text-anchor=\"end\"", text, out);
    }
    text_at(LEFT + width + 80, base, "", g->note[s], out);
}

void sp_gantt_svg(const struct sp_gantt *g, FILE *out)
{
    double width = plot_width(g), scale = g->end > 0 ? width / g->end : 0;
    double w = LEFT + width + RIGHT, h = TOP + g->stages * ROW + BOTTOM;

    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
            "font-size=\"12\" fill=\"#1b2430\">\n",
            w, h, w, h);
    fputs("<style>.s{font-size:11.5px;fill:#4c5866}"
          ".n{text-anchor:middle}"
          ".unit{fill:none;stroke:#1b2430;stroke-width:1.2;pointer-events:none}"
          ".way{fill:#c2410c;fill-opacity:.55}"
          ".exchange{fill:#7c1d4f;pointer-events:none}</style>\n"
          "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f3f5f8\"/>"
          "<rect width=\"1.2\" height=\"6\" fill=\"#dde2e9\"/></pattern>"
          "<pattern id=\"odd\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(-45)\"><rect width=\"1.3\" height=\"5\" fill=\"#000\" "
          "fill-opacity=\".28\"/></pattern></defs>\n",
          out);
    fprintf(out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", w, h);
    text_at(LEFT, 26, "font-size=\"16\" font-weight=\"bold\"", g->title, out);
    text_at(LEFT, 45, "class=\"s\"", g->subtitle, out);
    draw_legend(g, out);
    text_at(LEFT + width + 62, TOP - 8, "class=\"s\" text-anchor=\"end\"", "bubble", out);
    for (int s = 0; s < g->stages; s++)
        draw_stage(g, s, width, out);
    for (int i = 0; i < g->n; i++)
        draw_bar(&g->bars[i], scale, out);
    for (int i = 0; i + 1 < g->n; i++) {
        if (g->bars[i].joined && g->bars[i + 1].stage == g->bars[i].stage)
            draw_frame(&g->bars[i], scale, out);
    }
    for (int i = 0; i < g->n_messages; i++)
        draw_message(&g->messages[i], scale, out);
    draw_axis(g, width, scale, out);
    fputs("</svg>\n", out);
}
