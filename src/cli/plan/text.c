/* The layouts as a table, and the recommended command. */
#include "cli/plan/ranking.h"
#include "sp_error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 2, WIDTH = 100 }; /* columns between two of the table; of a line of the legend */

/* Letters of UTF-8. */
static int width_of(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* A cell of a row; f NULL: the name of the column. */
static void print_cell(const struct sp_ranking *r, const struct sp_column *c,
                       const struct sp_found *f, char cell[SP_CELL])
{
    if (f)
        sp_cell_print(r, c, f, cell);
    else
        snprintf(cell, SP_CELL, "%s", c->name);
}

static void measure_columns(const struct sp_ranking *r, const struct sp_table *table, int *width)
{
    char cell[SP_CELL];

    for (int k = 0; k < table->n; k++) {
        width[k] = 0;
        for (int i = -1; i < r->rows; i++) {
            print_cell(r, table->column[k], i < 0 ? NULL : &r->all[r->row[i]], cell);
            width[k] = width_of(cell) > width[k] ? width_of(cell) : width[k];
        }
    }
}

/* No blanks end the line. */
static void put_row(const struct sp_ranking *r, const struct sp_table *table, const int *width,
                    const struct sp_found *f, FILE *out)
{
    char cell[SP_CELL];
    int blanks = 0;

    for (int k = 0; k < table->n; k++) {
        const struct sp_column *c = table->column[k];
        int room;

        print_cell(r, c, f, cell);
        room = width[k] - width_of(cell);
        blanks += c->left ? 0 : room;
        if (*cell) {
            fprintf(out, "%*s%s", blanks, "", cell);
            blanks = 0;
        }
        blanks += (c->left ? room : 0) + GAP;
    }
    putc('\n', out);
}

static void put_legend(const struct sp_table *table, FILE *out)
{
    int used = 0;

    for (int k = 0; k < table->n; k++) {
        const char *text = table->column[k]->legend;

        if (!text)
            continue;
        if (used && used + 2 + (int)strlen(text) > WIDTH) {
            fputs(";\n", out);
            used = 0;
        }
        used += fprintf(out, "%s%s", used ? "; " : "", text);
    }
    putc('\n', out);
}

int sp_ranking_text(const struct sp_ranking *r, FILE *out)
{
    char *command = r->recommended ? sp_ranking_command(r, r->recommended) : NULL;
    struct sp_table table;
    int width[SP_COLUMNS];

    if (r->recommended && !command)
        return sp_error(ENOMEM, "plan: no memory for a command");
    sp_ranking_title(r, out);
    putc('\n', out);
    sp_table_choose(r, &table);
    sp_ranking_order(r, out);
    if (*table.common)
        fprintf(out, "\nall with %s", table.common);
    fputs("\n\n", out);
    measure_columns(r, &table, width);
    put_row(r, &table, width, NULL, out);
    for (int i = 0; i < r->rows; i++)
        put_row(r, &table, width, &r->all[r->row[i]], out);
    putc('\n', out);
    put_legend(&table, out);
    putc('\n', out);
    if (command) {
        fputs("recommended, with your tokens in place of FILE.bin:\n\n", out);
        sp_command_wrap(command, 2, out);
    } else {
        fprintf(out, "%s\n", sp_ranking_advice(r));
    }
    free(command);
    return 0;
}
