/*
 * Turns cells into actions, row by row. Sizes are bounded before memory is allocated for them:
 * stages and micro-batches are below SP_MAX_SIZE, ops at most SP_MAX_OPS.
 */
#include "policies/load/csv_rows.h"
#include "sp_error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int sp_csv_refuse(const struct sp_csv_reader *r, int row, unsigned int cell, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (cell)
        return sp_error(EINVAL, "%s: line %d, cell %u: %s", r->name, row + 1, cell, text);
    return sp_error(EINVAL, "%s: line %d: %s", r->name, row + 1, text);
}

/* Copies a cell for an error message, without characters that a terminal would obey. */
static const char *quoted(const char *cell, char text[44])
{
    int n = 0;

    for (; n < 40 && cell[n]; n++)
        text[n] = cell[n] >= ' ' && cell[n] <= '~' ? cell[n] : '?';
    memcpy(text + n, cell[n] ? "..." : "", cell[n] ? 4 : 1);
    return text;
}

/* Reads digits at *text, a number below SP_MAX_SIZE, and moves past them. 0, -EINVAL, or
 * -ERANGE. */
static int number(const char **text, unsigned short *value)
{
    const char *t = *text;
    long v = 0;

    if (*t < '0' || *t > '9')
        return -EINVAL;
    for (; *t >= '0' && *t <= '9'; t++) {
        v = 10 * v + (*t - '0');
        if (v >= SP_MAX_SIZE)
            return -ERANGE;
    }
    *text = t;
    *value = (unsigned short)v;
    return 0;
}

/* Reads "3F0" at *text and moves past it. */
static int parse_action(const char **text, struct sp_csv_action *a)
{
    int err = number(text, &a->global);

    if (err)
        return err;
    if (!**text || !strchr("FBIW", **text))
        return -EINVAL;
    a->letter = *(*text)++;
    return number(text, &a->mb);
}

/* Actions that follow from the order: messages, and gradients and parameters that several processes
 * share. */
static const char *const derived[] = {"SEND_F",  "RECV_F",  "SEND_B",      "RECV_B",
                                      "UNSHARD", "RESHARD", "REDUCE_GRAD", NULL};

/* True for a derived action of a stage, "0REDUCE_GRAD" or "2WAIT_RECV_F3". 1 or 0; -ERANGE. */
static int is_derived(const char *text)
{
    const char *const *word = derived, *end;
    unsigned short value;
    int err = number(&text, &value);

    if (err)
        return err == -ERANGE ? err : 0;
    if (!strncmp(text, "WAIT_", 5))
        text += 5;
    end = text + strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    while (*word && (strlen(*word) != (size_t)(end - text) || strncmp(text, *word, strlen(*word))))
        word++;
    if (!*word)
        return 0;
    err = *end ? number(&end, &value) : 0;
    return err == -ERANGE ? err : !err && !*end;
}

/* Reads one action, or the two of a pair. Returns how many: 0 if the cell is empty or derived. */
static int parse_cell(const char *text, struct sp_csv_action a[2])
{
    const char *t = text;
    int err;

    if (!*t)
        return 0;
    err = is_derived(t);
    if (err)
        return err < 0 ? err : 0;
    if (*t != '(') {
        err = parse_action(&t, &a[0]);
        return err ? err : *t ? -EINVAL : 1;
    }
    t++;
    err = parse_action(&t, &a[0]);
    if (!err && *t++ != ';')
        return -EINVAL;
    err = err ? err : parse_action(&t, &a[1]);
    if (err)
        return err;
    if (strcmp(t, ")OVERLAP_F_B") || a[0].letter != 'F' || !strchr("BI", a[1].letter))
        return -EINVAL;
    a[0].paired = true;
    return 2;
}

/* Appends an action to the current row. */
static int add(struct sp_csv_reader *r, const struct sp_csv_action *a)
{
    int at = r->rows - 1, owner = r->owner[a->global];
    struct sp_csv_row *row = &r->row[at];

    if (owner >= 0 && owner != at)
        return sp_csv_refuse(r, at, r->cell, "stage %d is on line %d already", a->global,
                             owner + 1);
    if (owner < 0) {
        r->owner[a->global] = at;
        row->globals++;
    }
    if (++r->ops > SP_MAX_OPS)
        return sp_csv_refuse(r, at, r->cell, "more than %d ops", SP_MAX_OPS);
    if (row->n == row->cap) {
        int cap = row->cap ? 2 * row->cap : 64;
        struct sp_csv_action *more = realloc(row->actions, (size_t)cap * sizeof *more);

        if (!more)
            return sp_error(ENOMEM, "no memory for the %d ops of line %d of %s", cap, at + 1,
                            r->name);
        row->actions = more;
        row->cap = cap;
    }
    row->actions[row->n++] = *a;
    r->globals = a->global >= r->globals ? a->global + 1 : r->globals;
    r->micro_batches = a->mb >= r->micro_batches ? a->mb + 1 : r->micro_batches;
    return 0;
}

/* Strips a cell of blanks, the return of a CR LF and a pair of quotes. */
static char *trim(char *text)
{
    size_t n;

    text += strspn(text, " \t");
    n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1]))
        n--;
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    text[n] = 0;
    return text;
}

/* Reads the text of a cell into text[n]; *end is what ended it: ',', '\n' or EOF. */
static int read_cell(struct sp_csv_reader *r, char *text, size_t n, int *end)
{
    size_t used = 0;
    int c;

    while ((c = getc_unlocked(r->in)) != ',' && c != '\n' && c != EOF) {
        if (!c)
            return sp_csv_refuse(r, r->rows - 1, r->cell, "a zero byte: this is no text");
        text[used++] = (char)c;
        text[used] = 0;
        if (used == n - 1) {
            char shown[44];

            return sp_csv_refuse(r, r->rows - 1, r->cell, "'%s' is too long", quoted(text, shown));
        }
    }
    text[used] = 0;
    *end = c;
    return 0;
}

int sp_csv_read_row(struct sp_csv_reader *r)
{
    int err, end = 0, n;

    if (r->rows == r->cap) {
        int cap = r->cap ? 2 * r->cap : 64;
        struct sp_csv_row *more = realloc(r->row, (size_t)cap * sizeof *more);

        if (!more)
            return sp_error(ENOMEM, "no memory for the %d lines of %s", cap, r->name);
        r->row = more;
        r->cap = cap;
    }
    r->row[r->rows++] = (struct sp_csv_row){0};
    for (r->cell = 1; end != '\n' && end != EOF; r->cell++) {
        struct sp_csv_action a[2] = {{.cell = r->cell}, {.cell = r->cell}};
        char text[96], shown[44];

        err = read_cell(r, text, sizeof text, &end);
        if (err)
            return err;
        n = parse_cell(trim(text), a);
        if (n == -ERANGE)
            return sp_csv_refuse(r, r->rows - 1, r->cell, "'%s' has a number above %d",
                                 quoted(trim(text), shown), SP_MAX_SIZE - 1);
        if (n < 0)
            return sp_csv_refuse(
                r, r->rows - 1, r->cell,
                "'%s' is no action that is known: 3F0, 3B0, 3I0, 3W0 or (3F1;0B0)OVERLAP_F_B, "
                "and messages, UNSHARD, RESHARD and REDUCE_GRAD, which follow from those",
                quoted(trim(text), shown));
        for (int i = 0; i < n; i++) {
            err = add(r, &a[i]);
            if (err)
                return err;
        }
    }
    return r->row[r->rows - 1].n
               ? 0
               : sp_csv_refuse(r, r->rows - 1, 0, "no action: every rank has some");
}
