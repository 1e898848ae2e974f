/*
 * What the signs of a picture are called and how they are coloured: the one list that terminal, SVG and pages print.
 * Forward blue, backward orange, weight gradient green; micro-batches cycle through eight shades, so that one can
 * be followed down the stages and back.
 */
#include "trace/gantt.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    double hue, saturation, dark, light; /* of micro-batches 0 and SP_GANTT_SHADES - 1 */
} style[SP_BAR_KINDS] = {
    [SP_BAR_F] = {"forward", 212, .68, .43, .74},
    [SP_BAR_B] = {"backward", 26, .86, .49, .75},
    [SP_BAR_W] = {"weight gradient", 150, .42, .36, .66},
    [SP_BAR_R] = {"recompute", 275, .38, .48, .74},
    [SP_BAR_U] = {"update", 0, 0, .45, .45},
    [SP_BAR_C] = {"communication", 340, .45, .66, .66},
};

const char *sp_gantt_kind_name(enum sp_bar_kind kind)
{
    return style[kind].name;
}

static struct sp_color hsl(double h, double s, double l)
{
    double v[3], a = s * fmin(l, 1 - l);
    static const int n[3] = {0, 8, 4};

    for (int i = 0; i < 3; i++) {
        double k = fmod(n[i] + h / 30, 12);

        v[i] = l - a * fmax(-1, fmin(fmin(k - 3, 9 - k), 1));
    }
    return (struct sp_color){(int)lround(255 * v[0]), (int)lround(255 * v[1]),
                             (int)lround(255 * v[2])};
}

/* Neighbouring micro-batches get shades some way apart: 0 3 6 1 4 7 2 5. */
struct sp_color sp_gantt_color(enum sp_bar_kind kind, int mb)
{
    int place = mb < 0 ? 0 : mb % SP_GANTT_SHADES * 3 % SP_GANTT_SHADES;
    double at = (double)place / (SP_GANTT_SHADES - 1);

    return hsl(style[kind].hue, style[kind].saturation,
               style[kind].dark + at * (style[kind].light - style[kind].dark));
}

/* WCAG 2.1, relative luminance. */
static double luminance(struct sp_color c)
{
    const int part[3] = {c.r, c.g, c.b};
    static const double weight[3] = {.2126, .7152, .0722};
    double sum = 0;

    for (int i = 0; i < 3; i++) {
        double v = part[i] / 255.0;

        sum += weight[i] * (v <= .04045 ? v / 12.92 : pow((v + .055) / 1.055, 2.4));
    }
    return sum;
}

double sp_color_contrast(struct sp_color a, struct sp_color b)
{
    double x = luminance(a), y = luminance(b);

    return (fmax(x, y) + .05) / (fmin(x, y) + .05);
}

/* White or black: one of them has a contrast of 4.58 or more to any colour. */
struct sp_color sp_gantt_ink(struct sp_color fill)
{
    static const struct sp_color light = {255, 255, 255}, dark = {0, 0, 0};

    return sp_color_contrast(fill, light) > sp_color_contrast(fill, dark) ? light : dark;
}

/* What stands in bars: the parts that their labels have (sp_gantt_label). */
static struct sp_gantt_key number_of(const struct sp_gantt *g)
{
    static const char *const words[][2] = {
        {"3", "micro-batch 3"},
        {"3s2", "micro-batch 3, slice 2, as far as it fits"},
        {"3.1", "micro-batch 3, chunk 1, as far as it fits"},
        {"3.1s2", "micro-batch 3, chunk 1, slice 2, as far as it fits"},
        {"3.1", "micro-batch 3, layer 1, as far as it fits"},
        {"3.1s2", "micro-batch 3, layer 1, slice 2, as far as it fits"},
        {"s2", "slice 2, as far as it fits"},
    };
    bool chunks = false, slices = false, alone = g->n > 0;
    const char *const *pair;

    for (int i = 0; i < g->n; i++) {
        chunks |= strchr(g->bars[i].label, '.') != NULL;
        slices |= strchr(g->bars[i].label, 's') != NULL;
        alone &= g->bars[i].label[0] == 's';
    }
    pair = words[alone ? 6 : slices + (chunks ? g->parts ? 4 : 2 : 0)];
    return (struct sp_gantt_key){.mark = SP_MARK_NUMBER, .sample = pair[0], .text = pair[1]};
}

int sp_gantt_legend(const struct sp_gantt *g, struct sp_gantt_key key[SP_GANTT_KEYS])
{
    bool used[SP_BAR_KINDS] = {false}, hatched = false, joined = false, exchanges = false;
    int n = 0;

    for (int i = 0; i < g->n; i++) {
        used[g->bars[i].kind] = true;
        hatched |= g->bars[i].chunk % 2;
        joined |= g->bars[i].joined;
        exchanges |= g->bars[i].exchange > 0;
    }
    for (int k = 0; k < SP_BAR_KINDS; k++)
        if (used[k])
            key[n++] = (struct sp_gantt_key){
                .mark = SP_MARK_BAR, .kind = (enum sp_bar_kind)k, .text = style[k].name};
    key[n++] = (struct sp_gantt_key){.mark = SP_MARK_IDLE, .text = "idle"};
    if (hatched)
        key[n++] = (struct sp_gantt_key){.mark = SP_MARK_HATCHED,
                                         .text = g->parts ? "attention" : "odd chunk"};
    if (joined)
        key[n++] = (struct sp_gantt_key){.mark = SP_MARK_FRAME, .text = "overlapped"};
    if (exchanges)
        key[n++] = (struct sp_gantt_key){.mark = SP_MARK_EXCHANGE, .text = "of it, for exchanges"};
    if (g->n_messages > 0)
        key[n++] = (struct sp_gantt_key){.mark = SP_MARK_MESSAGE, .text = "message on its way"};
    if (g->n_away > 0)
        key[n++] = (struct sp_gantt_key){.mark = SP_MARK_EVICTED,
                                         .text = "away: left memory, not yet back"};
    key[n++] = number_of(g);
    return n;
}
