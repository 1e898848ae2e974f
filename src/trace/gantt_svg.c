/*
 * The Gantt picture as SVG: no scripts, no fonts or files from outside, so that it can be put in
 * a page or a paper as it is. Forward blue, backward orange, weight gradient green; micro-batches
 * cycle through eight shades, so that one can be followed down the stages and back.
 */
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

static void escaped(const char *text, FILE *out)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            /* XML knows no other control characters */
            if ((unsigned char)*text >= 32 || *text == '\t' || *text == '\n')
                putc(*text, out);
        }
    }
}

static void text_at(double x, double y, const char *attributes, const char *text, FILE *out)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, *attributes ? " " : "", attributes);
    escaped(text, out);
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
    bool used[SP_BAR_KINDS] = {false};
    double x = LEFT;

    for (int i = 0; i < g->n; i++)
        used[g->bars[i].kind] = true;
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
    text_at(x + 42 + 4 * LETTER + 20, 68, "class=\"s\"", "number: micro-batch", out);
}

static void draw_bar(const struct sp_bar *bar, double scale, FILE *out)
{
    double x = LEFT + bar->start * scale, width = (bar->end - bar->start) * scale;
    double y = TOP + bar->stage * ROW + (ROW - BAR) / 2.0;
    struct color c = shade(bar->kind, bar->mb);
    double length = (double)strlen(bar->label);
    double gap = width > 4 ? 0.6 : 0; /* a thin line between neighbours, not in a crowd */

    fprintf(out,
            "<rect class=\"bar\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
            "fill=\"#%02x%02x%02x\"><title>",
            x + gap / 2, y, fmax(width - gap, 0), BAR, c.r, c.g, c.b);
    escaped(bar->name, out);
    fprintf(out, ": %.6g to %.6g</title></rect>\n", bar->start, bar->end);
    if (*bar->label && width >= 5.8 * length + 2) {
        int size = width >= DIGIT * length + 5 ? 11 : 9;
        char attributes[80];

        snprintf(attributes, sizeof attributes, "class=\"n\" font-size=\"%d\" fill=\"%s\"", size,
                 ink(c));
        text_at(x + width / 2, y + BAR / 2.0 + (size == 11 ? 4 : 3), attributes, bar->label, out);
    }
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
          ".n{text-anchor:middle}</style>\n"
          "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f3f5f8\"/>"
          "<rect width=\"1.2\" height=\"6\" fill=\"#dde2e9\"/></pattern></defs>\n",
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
    draw_axis(g, width, scale, out);
    fputs("</svg>\n", out);
}
