/*
 * A self-contained page: for each experiment bars, published beside simulated, and the table of its
 * numbers.
 */
#include "cli/reproduce/paper.h"
#include "trace/escape.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LETTER = 7, BARS = 420, VALUE = 80, LINE = 30, BAR = 11 }; /* pixels */

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
    "body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 "
    "1em; "
    "color: #222; background: #fff }\n"
    "table { border-collapse: collapse; font-size: 13px }\n"
    "td, th { padding: .15em .7em; border-bottom: 1px solid #ddd; text-align: left }\n"
    "td.n { text-align: right; font-variant-numeric: tabular-nums }\n"
    "svg text { font: 12px system-ui, sans-serif; fill: #222 }\n"
    ".p { fill: #9a9a9a } .s { fill: #2a6fb0 }\n"
    "summary { cursor: pointer; color: #2a6fb0 }\n"
    "@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } "
    "svg text { fill: #ddd } td, th { border-color: #444 } .s { fill: #5a9fe0 } }\n"
    "</style>\n";

static void put_escaped(const char *text)
{
    sp_escape_xml(text, stdout);
}

static double size_of(struct sp_value v)
{
    return v.kind == SP_VALUE_NUMBER ? fabs(v.number) : 0;
}

/* Cells with the same unit share a scale. */
static double scale_of(const struct sp_cell *cells, int n, const char *unit)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        if (!strcmp(cells[i].unit, unit))
            most = fmax(most, fmax(size_of(cells[i].published), size_of(cells[i].simulated)));
    return most > 0 ? BARS / most : 0;
}

/* Pixels for the longest label, a cell's row and column. */
static int labels_of(const struct sp_cell *cells, int n)
{
    size_t most = 0;

    for (int i = 0; i < n; i++) {
        size_t letters = strlen(cells[i].row) + strlen(cells[i].column) + 3;

        most = letters > most ? letters : most;
    }
    return LETTER * (int)most;
}

static void put_bar(const char *class, struct sp_value v, double scale, int x, int y)
{
    char text[32];
    double width = size_of(v) * scale;

    sp_value_print(v, text);
    if (v.kind == SP_VALUE_NUMBER)
        printf("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", class, x, y,
               width, BAR);
    printf("<text x=\"%.1f\" y=\"%d\">%s</text>\n", x + width + 5, y + BAR - 1, text);
}

/* The number of cells before an experiment's claims, which come last. */
static int numbers_of(const struct sp_cell *cells, int n)
{
    while (n > 0 && sp_cell_is_claim(&cells[n - 1]))
        n--;
    return n;
}

static void put_bars(const struct sp_cell *cells, int n)
{
    const int labels = labels_of(cells, n);

    if (!n)
        return;
    printf(
        "<svg width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"published beside simulated\">\n",
        labels + BARS + VALUE, n * LINE + 6);
    for (int i = 0; i < n; i++) {
        double scale = scale_of(cells, n, cells[i].unit);
        int y = i * LINE + 3;

        printf("<text x=\"0\" y=\"%d\">", y + BAR + 4);
        put_escaped(cells[i].row);
        fputs(", ", stdout);
        put_escaped(cells[i].column);
        puts("</text>");
        put_bar("p", cells[i].published, scale, labels, y);
        put_bar("s", cells[i].simulated, scale, labels, y + BAR + 1);
    }
    puts("</svg>");
}

static void put_table(const struct sp_cell *cells, int n)
{
    puts("<details><summary>numbers</summary><table><tr><th>row<th>column<th>published<th>simulated"
         "<th>off by<th>unit<th>note</tr>");
    for (int i = 0; i < n; i++) {
        const struct sp_cell *c = &cells[i];
        const struct sp_cell_words words = sp_cell_words(c);

        fputs("<tr><td>", stdout);
        put_escaped(c->row);
        fputs("<td>", stdout);
        put_escaped(c->column);
        printf("<td class=\"n\">%s %s<td class=\"n\">%s<td class=\"n\">%s<td>",
               c->relation ? c->relation : "", words.published, words.simulated, words.off);
        put_escaped(c->unit);
        fputs("<td>", stdout);
        put_escaped(c->note);
        puts("</tr>");
    }
    puts("</table></details>");
}

static void put_unpublished(const struct sp_paper *paper)
{
    if (!paper->n_more)
        return;
    puts(
        "<h2>What is drawn without numbers</h2>\n<details><summary>numbers</summary><table><tr><th>"
        "figure<th>row<th>column<th>simulated<th>unit</tr>");
    for (int i = 0; i < paper->n_more; i++) {
        const struct sp_unpublished *u = &paper->more[i];

        printf("<tr><td>%s<td>%s<td>%s<td class=\"n\">%.6g<td>%s</tr>\n", u->id, u->row, u->column,
               u->simulated, u->unit);
    }
    puts("</table></details>");
}

static void put_summary(const struct sp_paper *paper)
{
    fputs("<p>", stdout);
    sp_summary_print(&paper->summary, "; ");
    puts("</p>");
    puts("<p><svg width=\"230\" height=\"14\"><rect class=\"p\" width=\"11\" height=\"11\"/><text "
         "x=\"16\" y=\"10\">published</text><rect class=\"s\" x=\"110\" width=\"11\" "
         "height=\"11\"/><text x=\"126\" y=\"10\">simulated</text></svg></p>");
}

int sp_paper_html(const struct sp_paper *paper)
{
    const char *title = sp_title(paper->root);

    fputs(head, stdout);
    fputs("<title>", stdout);
    put_escaped(title);
    fputs("</title></head><body>\n<h1>", stdout);
    put_escaped(title);
    puts("</h1>");
    put_summary(paper);
    for (int i = 0, n; i < paper->n; i += n) {
        for (n = 1;
             i + n < paper->n && paper->cells[i + n].experiment == paper->cells[i].experiment;)
            n++;
        printf("<h2>%s: ", paper->cells[i].id);
        put_escaped(sp_title(paper->cells[i].experiment));
        puts("</h2>");
        put_bars(&paper->cells[i], numbers_of(&paper->cells[i], n));
        put_table(&paper->cells[i], n);
    }
    put_unpublished(paper);
    puts("</body></html>");
    return 0;
}
