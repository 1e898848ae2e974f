/*
 * Draws the Gantt picture as SVG without scripts, fonts or other files, so that it fits into a page
 * or a paper as it is. The time axis has the same width for every schedule.
 */
#include "trace/escape.h"
#include "trace/gantt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 880 /* of the picture */
#define LEFT 84   /* of the time axis: stage names */
#define RIGHT 146 /* of the time axis: bubble and peak */
#define PLOT (WIDTH - LEFT - RIGHT)
#define BOTTOM 56  /* under the last row: axis */
#define ROW 34     /* row pitch, without evictions */
#define AWAY 14    /* height of the evictions under the bars */
#define BAR 26     /* bar height */
#define LINE 17    /* pitch of lines of text */
#define LETTER 6.1 /* mean width of a letter, 11.5 px */

/* The layout: lines of text above the rows, then time. */
struct svg {
    const struct sp_gantt *g;
    FILE *out;
    double top, row;   /* top of the first row, and pitch of rows */
    double scale;      /* pixels per unit of time */
    int64_t most_away; /* bytes, of all stages */
};

/* The top of a stage's bars. */
static double bars_of(const struct svg *d, int stage)
{
    return d->top + stage * d->row + (ROW - BAR) / 2.0;
}

static void text_at(const struct svg *d, double x, double y, const char *attributes,
                    const char *text)
{
    fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, *attributes ? " " : "", attributes);
    sp_escape_xml(text, d->out);
    fputs("</text>\n", d->out);
}

/* Counts the characters of UTF-8 text. */
static size_t letters(const char *text, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n && text[i]; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Writes text in as many lines as it needs, broken at spaces, under d->top, which moves below
 * them. */
static void add_lines(struct svg *d, double letter, const char *attributes, const char *text)
{
    size_t most = (size_t)((WIDTH - LEFT - 10) / letter);
    char line[512];

    while (*text) {
        size_t n = 0;

        do {
            size_t word = n + strspn(text + n, " ");

            word += strcspn(text + word, " ");
            if (n && letters(text, word) > most)
                break;
            n = word;
        } while (text[n]);
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        text_at(d, LEFT, d->top, attributes, line);
        d->top += LINE;
        text += n + strspn(text + n, " ");
    }
}

/* Draws the sign of a key of the legend; returns its width. */
static double draw_sign(const struct svg *d, const struct sp_gantt_key *key, double x)
{
    static const struct {
        const char *attributes;
        double rise, height; /* above the base of the text */
    } sign[SP_MARKS] = {[SP_MARK_IDLE] = {"class=\"key\" fill=\"url(#idle)\"", 10, 12},
                        [SP_MARK_HATCHED] = {"class=\"key\" fill=\"url(#odd)\"", 10, 12},
                        [SP_MARK_FRAME] = {"class=\"unit\"", 9.5, 11},
                        [SP_MARK_EXCHANGE] = {"class=\"exchange\"", 10, 3},
                        [SP_MARK_MESSAGE] = {"class=\"way\"", 5, 2.2},
                        [SP_MARK_EVICTED] = {"class=\"away\"", 8, 8}};

    if (key->mark == SP_MARK_NUMBER) {
        text_at(d, x, d->top, "class=\"s b\"", key->sample);
        return (double)strlen(key->sample) * 6.8;
    }
    if (key->mark == SP_MARK_HATCHED)
        fprintf(d->out,
                "<rect class=\"ground\" x=\"%.1f\" y=\"%.1f\" width=\"28\" height=\"12\"/>\n", x,
                d->top - 10);
    for (int i = 0; key->mark == SP_MARK_BAR && i < 4; i++) {
        struct sp_color c = sp_gantt_color(key->kind, i);

        fprintf(d->out,
                "<rect class=\"key\" x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"12\" "
                "fill=\"#%02x%02x%02x\"/>\n",
                x + 7 * i, d->top - 10, c.r, c.g, c.b);
    }
    if (key->mark != SP_MARK_BAR)
        fprintf(d->out, "<rect %s x=\"%.1f\" y=\"%.1f\" width=\"28\" height=\"%.1f\"/>\n",
                sign[key->mark].attributes, x, d->top - sign[key->mark].rise,
                sign[key->mark].height);
    return 28;
}

static void add_legend(struct svg *d)
{
    struct sp_gantt_key key[SP_GANTT_KEYS];
    int n = sp_gantt_legend(d->g, key);
    double x = LEFT;

    d->top += 4;
    for (int i = 0; i < n; i++) {
        double width = 28 + 6 + LETTER * (double)strlen(key[i].text) + 16;

        if (x > LEFT && x + width > WIDTH) {
            x = LEFT;
            d->top += LINE + 2;
        }
        x += draw_sign(d, &key[i], x) + 6;
        text_at(d, x, d->top, "class=\"s\"", key[i].text);
        x += LETTER * (double)strlen(key[i].text) + 16;
    }
    d->top += LINE;
}

/* Draws as much of the label as fits. */
static void draw_label(const struct svg *d, const struct sp_bar *bar, double middle, double width,
                       double height)
{
    struct sp_color ink = sp_gantt_ink(sp_gantt_color(bar->kind, bar->mb));
    char text[SP_OP_TEXT], attributes[80];
    double y = bars_of(d, bar->stage), length;
    int size;

    snprintf(text, sizeof text, "%s", bar->label);
    while (5.8 * (double)strlen(text) + 2 > width && sp_gantt_shorten(text))
        ;
    length = (double)strlen(text);
    if (!*text || width < 5.8 * length + 2)
        return;
    size = width >= 6.3 * length + 5 && height > 14 ? 11 : 10;
    snprintf(attributes, sizeof attributes, "class=\"n\" font-size=\"%d\" fill=\"#%02x%02x%02x\"",
             size, ink.r, ink.g, ink.b);
    y += (bar->lane == 2 ? height : 0) + height / 2 + 3.8;
    text_at(d, middle, y, attributes, text);
}

static void draw_bar(const struct svg *d, const struct sp_bar *bar)
{
    double x = LEFT + bar->start * d->scale, width = (bar->end - bar->start) * d->scale;
    double y = bars_of(d, bar->stage), height = bar->lane ? BAR / 2.0 : BAR;
    struct sp_color c = sp_gantt_color(bar->kind, bar->mb);
    double gap = width > 4 ? 0.6 : 0; /* a thin line between wide neighbours */

    y += bar->lane == 2 ? height : 0;
    fprintf(d->out,
            "<rect class=\"bar\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
            "fill=\"#%02x%02x%02x\"><title>",
            x + gap / 2, y, fmax(width - gap, 0), height, c.r, c.g, c.b);
    sp_escape_xml(bar->name, d->out);
    fprintf(d->out, ": %.6g to %.6g", bar->start, bar->end);
    if (bar->exchange > 0)
        fprintf(d->out, ", %.3g of it for exchanges in the stage", bar->exchange);
    fputs("</title></rect>\n", d->out);
    if (bar->chunk % 2 && width >= 3)
        fprintf(d->out,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"url(#odd)\" "
                "pointer-events=\"none\"/>\n",
                x + gap / 2, y, width - gap, height);
    if (bar->exchange * d->scale >= 0.4)
        fprintf(d->out,
                "<rect class=\"exchange\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"3\"/>\n",
                x + gap / 2, y, fmin(bar->exchange * d->scale, width - gap));
    draw_label(d, bar, x + width / 2, width, height);
}

/* Draws a message as a line under the bars of the stage that receives it. */
static void draw_message(const struct svg *d, const struct sp_gantt_message *m)
{
    double y = d->top + m->to * d->row + (ROW + BAR) / 2.0 + 1;

    fprintf(d->out,
            "<rect class=\"way\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"2.2\"><title>",
            LEFT + m->sent * d->scale, y, fmax((m->arrived - m->sent) * d->scale, 0.4));
    sp_escape_xml(m->name, d->out);
    fprintf(d->out, " on its way from stage %d: %.6g to %.6g</title></rect>\n", m->from, m->sent,
            m->arrived);
}

/* Draws a stage's evicted bytes as a curve under its bars; steps narrower than 0.3 pixels are
 * merged and drawn as high as the highest of them. */
static void draw_away(const struct svg *d, int s)
{
    double base = d->top + (s + 1) * d->row - 3;
    int n, i = 0;
    struct sp_gantt_step *step = sp_gantt_evicted_of(d->g, s, &n);
    int64_t highest = 0;
    char text[48], bytes[32];

    while (i + 1 < n) {
        int first = i;
        int64_t most = 0;
        double x, width, height;

        do
            most = step[i].bytes > most ? step[i].bytes : most;
        while (++i + 1 < n && (step[i + 1].at - step[first].at) * d->scale < 0.3);
        x = LEFT + step[first].at * d->scale;
        width = (step[i].at - step[first].at) * d->scale;
        height = AWAY * (double)most / (double)d->most_away;
        highest = most > highest ? most : highest;
        if (most > 0)
            fprintf(d->out,
                    "<rect class=\"away\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\">"
                    "<title>%s away: %.6g to %.6g</title></rect>\n",
                    x, base - height, width, height, sp_gantt_bytes(most, bytes), step[first].at,
                    step[i].at);
    }
    fprintf(d->out, "<path class=\"axis\" d=\"M%d %.1fh%d\"/>\n", LEFT, base, PLOT);
    snprintf(text, sizeof text, "%s away", sp_gantt_bytes(highest, bytes));
    text_at(d, WIDTH - 10, base, "class=\"s\" text-anchor=\"end\"", text);
    free(step);
}

/* Sets the peak of evicted bytes, and the pitch of rows. */
static void make_room(struct svg *d)
{
    d->row = ROW;
    for (int s = 0; s < d->g->stages && d->g->n_away; s++) {
        int n;
        struct sp_gantt_step *step = sp_gantt_evicted_of(d->g, s, &n);

        for (int i = 0; i < n; i++)
            d->most_away = step[i].bytes > d->most_away ? step[i].bytes : d->most_away;
        free(step);
    }
    if (d->most_away > 0)
        d->row = ROW + AWAY + 4;
}

/* Draws a frame around two bars that are one unit. */
static void draw_frame(const struct svg *d, const struct sp_bar *bar)
{
    double x = LEFT + bar->start * d->scale, width = (bar[1].end - bar->start) * d->scale;

    if (width >= 6)
        fprintf(d->out,
                "<rect class=\"unit\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"/>\n",
                x + 0.6, bars_of(d, bar->stage) + 0.5, width - 1.2, BAR - 1);
}

static void draw_axis(const struct svg *d)
{
    const struct sp_gantt *g = d->g;
    double step = sp_gantt_tick(g->end, PLOT / 70), y = d->top + g->stages * d->row + 4;
    char text[48];

    fprintf(d->out, "<g class=\"axis\"><path d=\"M%d %.1fh%d\"/>\n", LEFT, y, PLOT);
    for (int i = 0; i * step <= g->end * (1 + 1e-9); i++)
        fprintf(d->out, "<path d=\"M%.2f %.1fv5\"/>\n", LEFT + i * step * d->scale, y);
    fputs("</g>\n", d->out);
    for (int i = 0; i * step <= g->end * (1 + 1e-9); i++) {
        snprintf(text, sizeof text, "%.6g", i * step);
        text_at(d, LEFT + i * step * d->scale, y + 18, "class=\"s\" text-anchor=\"middle\"", text);
    }
    snprintf(text, sizeof text, "time%s%s%s", *g->unit ? " (" : ", in units of the costs", g->unit,
             *g->unit ? ")" : "");
    text_at(d, LEFT, y + 38, "class=\"s\"", text);
    text_at(d, WIDTH - 10, y + 38, "class=\"s\" text-anchor=\"end\"", g->notes);
}

static void draw_stage(const struct svg *d, int s)
{
    const struct sp_gantt *g = d->g;
    double y = bars_of(d, s), base = y + BAR / 2.0 + 4;
    char text[48];

    fprintf(d->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"url(#idle)\"/>\n",
            LEFT, y, PLOT, BAR);
    if (g->row)
        snprintf(text, sizeof text, "%s", g->row[s]);
    else
        snprintf(text, sizeof text, "stage %d", s);
    text_at(d, LEFT - 10, base, "text-anchor=\"end\"", text);
    if (g->idle_percent[s] >= 0) {
        snprintf(text, sizeof text, "%.1f %%", g->idle_percent[s]);
        text_at(d, LEFT + PLOT + 58, base, "text-anchor=\"end\"", text);
    }
    text_at(d, LEFT + PLOT + 72, base, "", g->note[s]);
}

/* Bars and the text on them have the same colours in dark mode. */
static const char styles[] =
    "<style>.gantt{fill:#1b2430}.page{fill:#fff}.s{font-size:11.5px;fill:#4c5866}"
    ".b{font-weight:bold}.n{text-anchor:middle}.axis{stroke:#8792a2}"
    ".unit{fill:none;stroke:#1b2430;stroke-width:1.2;pointer-events:none}"
    ".way{fill:#c2410c}.away{fill:#7a6fb8;shape-rendering:crispEdges}.exchange{fill:#7c1d4f;"
    "pointer-events:none}"
    ".ground{fill:#b9c2cd}.i0{fill:#f3f5f8}.i1{fill:#dde2e9}.hatch{fill:#000;fill-opacity:.28}\n"
    "@media (prefers-color-scheme:dark){.gantt{fill:#e4e9f0}.page{fill:#14181e}.s{fill:#9aa6b5}"
    ".axis{stroke:#6b7685}.unit{stroke:#fff}.way{fill:#ff9a5c}.away{fill:#a79ee0}"
    ".i0{fill:#1e242d}.i1{fill:#2a323d}}</style>\n"
    "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect class=\"i0\" width=\"6\" height=\"6\"/>"
    "<rect class=\"i1\" width=\"1.2\" height=\"6\"/></pattern>"
    "<pattern id=\"odd\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(-45)\"><rect class=\"hatch\" width=\"1.3\" height=\"5\"/>"
    "</pattern></defs>\n";

/* Lays out the lines of text and the legend above the rows; draws them if there is an output. */
static void draw_head(struct svg *d)
{
    d->top = 26;
    add_lines(d, 8.6, "font-size=\"15\" font-weight=\"bold\"", d->g->title);
    add_lines(d, LETTER, "class=\"s\"", d->g->subtitle);
    add_legend(d);
    text_at(d, LEFT + PLOT + 58, d->top, "class=\"s\" text-anchor=\"end\"", "bubble");
    d->top += 6;
}

/* Draws a picture, after the definitions `shared`; NULL: the page has them. */
static void draw(const struct sp_gantt *g, const char *shared, FILE *out)
{
    char *head = NULL;
    size_t n = 0;
    struct svg d = {.g = g, .out = open_memstream(&head, &n)};
    double h;

    d.scale = g->end > 0 ? PLOT / g->end : 0;
    make_room(&d);
    if (d.out) { /* its height is known once it is written */
        draw_head(&d);
        fclose(d.out);
    }
    d.out = out;
    h = d.top + g->stages * d.row + BOTTOM;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"gantt\" width=\"%d\" "
            "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
            "font-size=\"12\">\n%s",
            WIDTH, h, WIDTH, h, shared ? shared : "");
    fprintf(out, "<rect class=\"page\" width=\"%d\" height=\"%.0f\"/>\n%s", WIDTH, h,
            head ? head : "");
    free(head);
    for (int s = 0; s < g->stages; s++)
        draw_stage(&d, s);
    for (int i = 0; i < g->n; i++)
        draw_bar(&d, &g->bars[i]);
    for (int i = 0; i + 1 < g->n; i++) {
        if (g->bars[i].joined && g->bars[i + 1].stage == g->bars[i].stage)
            draw_frame(&d, &g->bars[i]);
    }
    for (int i = 0; i < g->n_messages; i++)
        draw_message(&d, &g->messages[i]);
    for (int s = 0; s < g->stages && d.most_away > 0; s++)
        draw_away(&d, s);
    draw_axis(&d);
    fputs("</svg>\n", out);
}

void sp_gantt_svg(const struct sp_gantt *g, FILE *out)
{
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", out);
    draw(g, styles, out);
}

void sp_gantt_svg_shared(FILE *out)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"0\" height=\"0\" "
            "style=\"position:absolute\" aria-hidden=\"true\">%s</svg>\n",
            styles);
}

void sp_gantt_svg_element(const struct sp_gantt *g, FILE *out)
{
    draw(g, NULL, out);
}
