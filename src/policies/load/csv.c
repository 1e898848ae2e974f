/*
 * Reads the rows of a CSV, cell by cell, and makes a plan of them. Each stage of the file is on one
 * row, which gives the placement; every op must occur exactly once. Sizes are bounded before memory
 * is allocated for them: stages and micro-batches are below SP_MAX_SIZE, ops at most SP_MAX_OPS.
 */
#include "policies/load/csv.h"
#include "sp_error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_BYTES (512L << 20) /* of a file; SP_MAX_OPS pairs of long numbers take less */

const struct sp_schedule_def sp_schedule_csv = {
    .abi = SP_SCHEDULE_ABI,
    .name = "csv",
    .summary = "the order of a file, as torch.distributed.pipelining writes it",
    .source = "the file",
    .family = "layerwise",
    .default_chunks = 1,
};

/* ---- rows ------------------------------------------------------------------------------------- */

struct action {
    unsigned short global, mb;
    char letter;
    bool paired;       /* with the next action */
    unsigned int cell; /* from 1 */
};

struct row {
    int n, cap;
    struct action *actions;
    int globals; /* how many different ones */
};

struct reader {
    FILE *in;
    const char *name;
    int rows, cap; /* row r is line r + 1 */
    struct row *row;
    unsigned int cell;
    int owner[SP_MAX_SIZE]; /* row of a global stage, -1: none yet */
    int globals, micro_batches;
    long long ops;
};

/* Prints one line on stderr about a cell of a row (0: about the row). Returns -EINVAL. */
__attribute__((format(printf, 4, 5))) static int refuse(const struct reader *r, int row,
                                                        unsigned int cell, const char *fmt, ...)
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
static int parse_action(const char **text, struct action *a)
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
static int parse_cell(const char *text, struct action a[2])
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
static int add(struct reader *r, const struct action *a)
{
    int at = r->rows - 1, owner = r->owner[a->global];
    struct row *row = &r->row[at];

    if (owner >= 0 && owner != at)
        return refuse(r, at, r->cell, "stage %d is on line %d already", a->global, owner + 1);
    if (owner < 0) {
        r->owner[a->global] = at;
        row->globals++;
    }
    if (++r->ops > SP_MAX_OPS)
        return refuse(r, at, r->cell, "more than %d ops", SP_MAX_OPS);
    if (row->n == row->cap) {
        int cap = row->cap ? 2 * row->cap : 64;
        struct action *more = realloc(row->actions, (size_t)cap * sizeof *more);

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
static int read_cell(struct reader *r, char *text, size_t n, int *end)
{
    size_t used = 0;
    int c;

    while ((c = getc_unlocked(r->in)) != ',' && c != '\n' && c != EOF) {
        if (!c)
            return refuse(r, r->rows - 1, r->cell, "a zero byte: this is no text");
        text[used++] = (char)c;
        text[used] = 0;
        if (used == n - 1) {
            char shown[44];

            return refuse(r, r->rows - 1, r->cell, "'%s' is too long", quoted(text, shown));
        }
    }
    text[used] = 0;
    *end = c;
    return 0;
}

/* Reads the next line as a row, and enters its stages in `owner`. 0, -EINVAL or -ENOMEM. */
static int read_row(struct reader *r)
{
    int err, end = 0, n;

    if (r->rows == r->cap) {
        int cap = r->cap ? 2 * r->cap : 64;
        struct row *more = realloc(r->row, (size_t)cap * sizeof *more);

        if (!more)
            return sp_error(ENOMEM, "no memory for the %d lines of %s", cap, r->name);
        r->row = more;
        r->cap = cap;
    }
    r->row[r->rows++] = (struct row){0};
    for (r->cell = 1; end != '\n' && end != EOF; r->cell++) {
        struct action a[2] = {{.cell = r->cell}, {.cell = r->cell}};
        char text[96], shown[44];

        err = read_cell(r, text, sizeof text, &end);
        if (err)
            return err;
        n = parse_cell(trim(text), a);
        if (n == -ERANGE)
            return refuse(r, r->rows - 1, r->cell, "'%s' has a number above %d",
                          quoted(trim(text), shown), SP_MAX_SIZE - 1);
        if (n < 0)
            return refuse(
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
    return r->row[r->rows - 1].n ? 0 : refuse(r, r->rows - 1, 0, "no action: every rank has some");
}

/* ---- the plan --------------------------------------------------------------------------------- */

/* Ops of a global stage for a micro-batch, found so far. */
enum { HAS_F = 1, HAS_B = 2, HAS_I = 4, HAS_W = 8 };

/* Compares a size of the file with the size asked for; 0: any. */
static int same(const struct reader *r, const char *option, int is, int wanted)
{
    if (wanted == 0 || wanted == is)
        return 0;
    return sp_error(EINVAL, "%s has %d %s, not %d; leave --%s out", r->name, is, option, wanted,
                    option);
}

/* Checks that the rows and stages make a placement, and sets the sizes of the layout. */
static int check_sizes(const struct reader *r, struct sp_layout *lay)
{
    for (int g = 0; g < r->globals; g++) {
        if (r->owner[g] < 0)
            return sp_error(EINVAL, "%s: stage %d of 0 .. %d is on no line", r->name, g,
                            r->globals - 1);
    }
    for (int s = 1; s < r->rows; s++) {
        if (r->row[s].globals != r->row[0].globals)
            return refuse(r, s, 0, "%d stages, line 1 has %d; every rank has as many",
                          r->row[s].globals, r->row[0].globals);
    }
    if (same(r, "stages", r->rows, lay->stages) ||
        same(r, "micro-batches", r->micro_batches, lay->micro_batches) ||
        same(r, "chunks", r->row[0].globals, lay->chunks) || same(r, "slices", 1, lay->slices))
        return -EINVAL;
    if (3LL * r->globals * r->micro_batches > SP_MAX_OPS)
        return sp_error(EINVAL, "%s: %d stages and %d micro-batches make more than %d ops", r->name,
                        r->globals, r->micro_batches, SP_MAX_OPS);
    lay->stages = r->rows;
    lay->micro_batches = r->micro_batches;
    lay->chunks = r->row[0].globals;
    lay->slices = 1;
    return 0;
}

/* Marks each op in `has`. A micro-batch needs one forward and one backward: full, or of the input
 * and of the weights. */
static int mark(const struct reader *r, unsigned char *has)
{
    static const char letters[] = "FBIW";

    for (int s = 0; s < r->rows; s++) {
        for (int k = 0; k < r->row[s].n; k++) {
            const struct action *a = &r->row[s].actions[k];
            unsigned char *at = &has[(size_t)a->global * (size_t)r->micro_batches + a->mb];
            int bit = 1 << (strchr(letters, a->letter) - letters);
            int clash = bit == HAS_B ? HAS_I | HAS_W : bit & (HAS_I | HAS_W) ? HAS_B : 0;

            if (*at & bit)
                return refuse(r, s, a->cell, "%d%c%d for the second time", a->global, a->letter,
                              a->mb);
            if (*at & clash)
                return refuse(r, s, a->cell, "%d%c%d beside %d%c%d: a backward is B, or I and W",
                              a->global, a->letter, a->mb, a->global,
                              *at & HAS_B   ? 'B'
                              : *at & HAS_I ? 'I'
                                            : 'W',
                              a->mb);
            *at = (unsigned char)(*at | bit);
        }
    }
    return 0;
}

static int check_complete(const struct reader *r)
{
    size_t m = (size_t)r->micro_batches;
    unsigned char *has = calloc((size_t)r->globals * m, 1);
    int err;

    if (!has)
        return sp_error(ENOMEM, "no memory for the %lld ops of %s", r->ops, r->name);
    err = mark(r, has);
    for (size_t i = 0; !err && i < (size_t)r->globals * m; i++) {
        char missing = !(has[i] & HAS_F)                       ? 'F'
                       : !(has[i] & (HAS_B | HAS_I))           ? has[i] & HAS_W ? 'I' : 'B'
                       : (has[i] & HAS_I) && !(has[i] & HAS_W) ? 'W'
                                                               : 0;

        if (missing)
            err = refuse(r, r->owner[i / m], 0, "%d%c%d is missing", (int)(i / m), missing,
                         (int)(i % m));
    }
    free(has);
    return err;
}

/* Builds the placement that the rows show, and the programs. */
static int build(const struct reader *r, struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_map *map = calloc(1, sizeof *map);
    int *chunks = calloc((size_t)lay->stages, sizeof *chunks); /* of a stage, so far */
    struct sp_program *programs = calloc((size_t)lay->stages, sizeof *programs);
    int *global = calloc((size_t)r->globals, sizeof *global);
    struct sp_chunk_owner *home = calloc((size_t)r->globals, sizeof *home);

    if (!map || !chunks || !programs || !global || !home) {
        free(map);
        free(chunks);
        free(programs);
        free(global);
        free(home);
        return sp_error(ENOMEM, "no memory for the %d stages of %s", r->globals, r->name);
    }
    *map = (struct sp_map){.pipes = 1, .globals = r->globals, .global = global, .home = home};
    for (int g = 0; g < r->globals; g++) {
        int s = r->owner[g];

        home[g] = (struct sp_chunk_owner){s, chunks[s]++};
        global[(size_t)s * (size_t)lay->chunks + (size_t)home[g].chunk] = g;
    }
    free(chunks);
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < r->row[s].n; k++) {
            const struct action *a = &r->row[s].actions[k];
            enum sp_pass pass = a->letter == 'F' ? SP_F : a->letter == 'W' ? SP_W : SP_B;

            sp_program_add_op(&programs[s], (struct sp_op){.pass = (unsigned char)pass,
                                                           .overlap = a->paired,
                                                           .mb = a->mb,
                                                           .chunk = home[a->global].chunk});
        }
    }
    plan->map = map;
    plan->layout.map = map;
    plan->programs = programs;
    return 0;
}

int sp_csv_parse(FILE *in, const char *name, struct sp_plan *plan)
{
    struct reader *r = calloc(1, sizeof *r);
    struct sp_layout lay = plan->layout;
    int err = 0, c;

    if (!r)
        return sp_error(ENOMEM, "no memory to read %s", name);
    r->in = in;
    r->name = name;
    memset(r->owner, -1, sizeof r->owner);
    while (!err && (c = getc(in)) != EOF) {
        ungetc(c, in);
        err = r->rows < SP_MAX_SIZE ? read_row(r)
                                    : sp_error(EINVAL, "%s: more than %d lines", name, SP_MAX_SIZE);
    }
    if (!err && ferror(in))
        err = sp_error(EIO, "cannot read %s: %s", name, strerror(errno));
    if (!err && r->rows == 0)
        err = sp_error(EINVAL, "%s is empty: want a line for each rank", name);
    err = err ? err : check_sizes(r, &lay);
    err = err ? err : check_complete(r);
    if (!err) {
        plan->layout = lay;
        err = build(r, plan);
    }
    for (int s = 0; s < r->rows; s++)
        free(r->row[s].actions);
    free(r->row);
    free(r);
    return err;
}

int sp_csv_read(const char *path, struct sp_plan *plan)
{
    struct stat st;
    FILE *in;
    int err;

    if (!*path)
        return sp_error(EINVAL, "schedule csv: which file? Write csv:FILE");
    if (stat(path, &st))
        return sp_error(EINVAL, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return sp_error(EINVAL, "cannot read %s: not a regular file", path);
    if (st.st_size > MAX_BYTES)
        return sp_error(EINVAL, "%s has %lld bytes, an order at most %ld", path,
                        (long long)st.st_size, MAX_BYTES);
    in = fopen(path, "r");
    if (!in)
        return sp_error(EINVAL, "cannot read %s: %s", path, strerror(errno));
    err = sp_csv_parse(in, path, plan);
    fclose(in);
    return err;
}
