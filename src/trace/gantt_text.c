#include "trace/gantt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* of even and odd chunks */
static const char fill[SP_BAR_KINDS][2] = {[SP_BAR_F] = "-_", [SP_BAR_B] = "=%", [SP_BAR_W] = "~^",
                                           [SP_BAR_R] = "+*", [SP_BAR_U] = "##", [SP_BAR_C] = "::"};
/* background colours of the 256-colour palette, under black text */
static const int background[SP_BAR_KINDS] = {[SP_BAR_F] = 117, [SP_BAR_B] = 215, [SP_BAR_W] = 150,
                                             [SP_BAR_R] = 183, [SP_BAR_U] = 250, [SP_BAR_C] = 252};

/* The detail of bars: their numbers, one sign for each, or only their kind. */
enum detail { NUMBERS, SIGNS, FILLS };

struct canvas {
    double scale; /* columns per unit of time */
    int columns;
    enum detail detail;
    char *text; /* [columns] */
    char *kind; /* [columns] bar kind, -1 idle */
    char *odd;  /* [columns] of an odd chunk */
};

/* Gives the shortest bar whole columns if there is room, so that equal bars look equal. */
static void set_scale(const struct sp_gantt *g, int columns, struct canvas *c)
{
    double shortest = INFINITY, wide;

    for (int i = 0; i < g->n; i++) {
        double length = g->bars[i].end - g->bars[i].start;

        if (length > 0 && length < shortest)
            shortest = length;
    }
    if (!(g->end > 0) || !(shortest < INFINITY)) {
        c->scale = 0;
        c->columns = 0;
        c->detail = FILLS;
        return;
    }
    wide = floor(columns * shortest / g->end * (1 + 1e-12));
    if (g->uneven) {
        c->scale = columns / g->end;
        c->detail = NUMBERS;
        c->columns = columns;
        return;
    }
    c->scale = wide >= 1 ? wide / shortest : columns / g->end;
    c->detail = wide >= 2 ? NUMBERS : wide >= 1 ? SIGNS : FILLS;
    c->columns = (int)lround(g->end * c->scale);
    if (c->columns > columns)
        c->columns = columns;
}

/* The sign of a bar in one column. */
static char sign(const struct sp_bar *bar)
{
    if (bar->mb < 0 || (bar->kind != SP_BAR_F && bar->kind != SP_BAR_B))
        return fill[bar->kind][bar->chunk % 2];
    return (char)(bar->kind == SP_BAR_F ? '0' + bar->mb % 10 : 'a' + bar->mb % 26);
}

static void draw_bar(const struct canvas *c, const struct sp_bar *bar, bool uneven)
{
    int from = (int)lround(bar->start * c->scale), to = (int)lround(bar->end * c->scale);
    char label[SP_OP_TEXT];
    size_t room, digits = strcspn(bar->label, ".s");

    if (to > c->columns)
        to = c->columns;
    for (int x = from; x < to; x++) {
        c->text[x] = c->detail == SIGNS ? sign(bar) : fill[bar->kind][bar->chunk % 2];
        c->kind[x] = (char)bar->kind;
        c->odd[x] = (char)(bar->chunk % 2);
    }
    if (c->detail != NUMBERS || bar->mb < 0 || to <= from)
        return;
    /* Writes "3.1s2", "3.1" or "3", but the last digit if not all fit: a wrong-looking number would
     * mislead more than a short one. One column stays for the fill, which tells the pass. A
     * shortened label may do without it, but bars of any length always need it. */
    room = (size_t)(to - from);
    if (uneven && (digits ? digits : strlen(bar->label)) >= room)
        return;
    snprintf(label, sizeof label, "%s", bar->label);
    while (strlen(label) + (strlen(label) > digits) > room && sp_gantt_shorten(label))
        ;
    if (*label && strlen(label) <= room)
        memcpy(c->text + from, label, strlen(label));
    else
        c->text[from] = sign(bar);
}

static void print_row(const struct canvas *c, bool color, FILE *out)
{
    int now = -1, odd = 0;

    for (int x = 0; x < c->columns; x++) {
        if (color && (c->kind[x] != now || c->odd[x] != odd)) {
            now = c->kind[x];
            odd = c->odd[x];
            if (now >= 0)
                fprintf(out, "\033[0;48;5;%dm\033[30%sm", background[now], odd ? ";4" : "");
            else
                fputs("\033[0m", out);
        }
        putc(c->text[x], out);
    }
    if (color && now >= 0)
        fputs("\033[0m", out);
}

static void print_axis(const struct sp_gantt *g, const struct canvas *c, int margin, FILE *out)
{
    int most = c->columns / 10 > 0 ? c->columns / 10 : 1;
    double step = sp_gantt_tick(g->end, most < 12 ? most : 12);
    int x = 0;

    fprintf(out, "%*s", margin, "");
    for (int i = 0; i * step <= g->end * (1 + 1e-9); i++) {
        char text[32];
        int at = (int)lround(i * step * c->scale);

        x += fprintf(out, "%*s", at > x ? at - x : 0, "");
        snprintf(text, sizeof text, "|%.6g", i * step);
        x += fprintf(out, "%s", text);
    }
    fprintf(out, "%s%s\n", *g->unit ? " " : "", g->unit);
}

/* Explains the fill of odd chunks, or of attention. */
static void print_hatched(const struct sp_gantt_key *key, const struct canvas *c, bool parts,
                          bool color, FILE *out)
{
    if (c->detail == SIGNS && !color)
        fprintf(out, "%s is not told apart at this width; try --width\n", key->text);
    else if (c->detail == SIGNS)
        fprintf(out, "%s: underlined\n", key->text);
    else
        fprintf(out, "%s: _, %%, ^%s; %s: -, =, ~\n", key->text, color ? ", underlined" : "",
                parts ? "the rest of a layer" : "even");
}

static void print_legend(const struct sp_gantt *g, const struct canvas *c, bool color, FILE *out)
{
    struct sp_gantt_key key[SP_GANTT_KEYS];
    int n = sp_gantt_legend(g, key);
    const char *comma = "";

    for (int i = 0; i < n; i++) {
        if (key[i].mark == SP_MARK_BAR && c->detail == SIGNS && key[i].kind == SP_BAR_F)
            fprintf(out, "%s0-9 %s", comma, key[i].text);
        else if (key[i].mark == SP_MARK_BAR && c->detail == SIGNS && key[i].kind == SP_BAR_B)
            fprintf(out, "%sa-z %s (a: %s 0)", comma, key[i].text,
                    key[n - 1].sample[0] == 's' ? "slice" : "micro-batch");
        else if (key[i].mark == SP_MARK_BAR)
            fprintf(out, "%s%c %s", comma, fill[key[i].kind][0], key[i].text);
        else if (key[i].mark == SP_MARK_IDLE)
            fprintf(out, "%s. %s", comma, key[i].text);
        else if (key[i].mark == SP_MARK_NUMBER && c->detail == NUMBERS)
            fprintf(out, "; %s: %s", key[i].sample, key[i].text);
        comma = ", ";
    }
    putc('\n', out);
    for (int i = 0; i < n; i++) {
        if (key[i].mark == SP_MARK_HATCHED)
            print_hatched(&key[i], c, g->parts, color, out);
        if (key[i].mark == SP_MARK_FRAME)
            fprintf(out, "%s: forwards and backwards, drawn one after the other\n", key[i].text);
    }
    if (*g->notes)
        fprintf(out, "%s\n", g->notes);
}

void sp_gantt_text(const struct sp_gantt *g, int columns, bool color, FILE *out)
{
    struct canvas c = {0};
    char name[24];
    int margin = snprintf(name, sizeof name, "stage %d", g->stages - 1) + 2;
    int notes = 24, bar = 0;

    set_scale(g, columns - margin - notes > 20 ? columns - margin - notes : 20, &c);
    c.text = malloc((size_t)c.columns + 1);
    c.kind = malloc((size_t)c.columns + 1);
    c.odd = malloc((size_t)c.columns + 1);
    if (!c.text || !c.kind || !c.odd) {
        fputs("(no memory for the picture)\n", out);
        goto out;
    }
    fprintf(out, "%s\n", g->title);
    for (int s = 0; s < g->stages; s++) {
        memset(c.text, '.', (size_t)c.columns);
        memset(c.kind, -1, (size_t)c.columns);
        memset(c.odd, 0, (size_t)c.columns);
        for (; bar < g->n && g->bars[bar].stage == s; bar++)
            draw_bar(&c, &g->bars[bar], g->uneven);
        snprintf(name, sizeof name, "stage %d", s);
        fprintf(out, "%-*s", margin, name);
        print_row(&c, color, out);
        if (g->idle_percent[s] >= 0)
            fprintf(out, "  %5.1f %% idle", g->idle_percent[s]);
        if (*g->note[s])
            fprintf(out, "  %s", g->note[s]);
        putc('\n', out);
    }
    if (c.columns > 0)
        print_axis(g, &c, margin, out);
    print_legend(g, &c, color, out);
out:
    free(c.text);
    free(c.kind);
    free(c.odd);
}
