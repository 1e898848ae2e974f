#define _GNU_SOURCE /* vasprintf */
#include "trace/fxt/paje.h"
#include "sp_error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char BLANKS[] = " \t\r\n";

/* ---- the header ------------------------------------------------------------------------------ */

static void forget_kind(struct sp_paje_kind *kind)
{
    for (int i = 0; i < kind->n; i++)
        free(kind->field[i]);
    free(kind->event);
    *kind = (struct sp_paje_kind){0};
}

static void add_field(struct sp_paje_kind *kind, const char *name, int length)
{
    if (kind->n < SP_PAJE_FIELDS)
        kind->field[kind->n++] = strndup(name, (size_t)length);
}

void sp_paje_define(struct sp_paje *p, int code, const char *event, const char *fields)
{
    struct sp_paje_kind *kind = &p->kinds[code];

    forget_kind(kind);
    kind->event = strdup(event);
    for (const char *f = fields; *f; f += strspn(f, BLANKS)) {
        int length = (int)strcspn(f, BLANKS);

        add_field(kind, f, length);
        f += length;
    }
}

/* Reads a line that begins with '%'; *kind: the definition that it belongs to. */
static void read_header(struct sp_paje *p, const char *line, struct sp_paje_kind **kind)
{
    char what[64], name[64];
    int code = 0;

    if (sscanf(line, "%%EventDef %63s %d", what, &code) == 2 && code >= 0 && code < SP_PAJE_CODES) {
        *kind = &p->kinds[code];
        sp_paje_define(p, code, what, "");
    } else if (*kind && strncmp(line, "%End", 4) && sscanf(line, "%% %63s %63s", name, what) == 2) {
        add_field(*kind, name, (int)strlen(name));
    }
}

int sp_paje_field(const struct sp_paje *p, int code, const char *name)
{
    const struct sp_paje_kind *kind = &p->kinds[code];
    int timed = code >= SP_PAJE_CREATE;

    for (int i = timed; i < kind->n; i++)
        if (!strcmp(kind->field[i], name))
            return i - timed;
    return -1;
}

void sp_paje_drop_field(struct sp_paje *p, int code, int field)
{
    struct sp_paje_kind *kind = &p->kinds[code];
    int at = field + (code >= SP_PAJE_CREATE);

    free(kind->field[at]);
    memmove(&kind->field[at], &kind->field[at + 1], sizeof(char *) * (size_t)(--kind->n - at));
}

/* ---- words ----------------------------------------------------------------------------------- */

void sp_paje_split(const char *rest, struct sp_paje_words *words)
{
    size_t size = strlen(rest) + 1;
    char *c;

    if (size > words->size) {
        words->text = realloc(words->text, size);
        words->size = words->text ? size : 0;
    }
    words->n = 0;
    if (!words->text)
        return;
    memcpy(words->text, rest, size);
    for (c = words->text + strspn(words->text, BLANKS); *c && words->n < SP_PAJE_FIELDS;
         c += strspn(c, BLANKS)) {
        bool quoted = *c == '"';

        words->at[words->n++] = c += quoted;
        c += strcspn(c, quoted ? "\"" : BLANKS);
        if (*c)
            *c++ = '\0';
    }
}

void sp_paje_words_free(struct sp_paje_words *words)
{
    free(words->text);
    *words = (struct sp_paje_words){0};
}

struct sp_paje_event *sp_paje_next(const struct sp_paje *p, int code, size_t *i,
                                   struct sp_paje_words *words)
{
    while (*i < p->n) {
        struct sp_paje_event *e = &p->events[(*i)++];

        if (e->code == code && e->rest) {
            sp_paje_split(e->rest, words);
            return e;
        }
    }
    sp_paje_words_free(words);
    return NULL;
}

char *sp_paje_join(const struct sp_paje_words *words, int but)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    for (int i = 0; f && i < words->n; i++) {
        const char *w = words->at[i];
        const char *quote = !*w || strpbrk(w, BLANKS) ? "\"" : "";

        if (i != but) /* readers stop at an empty word */
            fprintf(f, "%s%s%s%s", i ? "\t" : "", quote, *w ? w : "-", quote);
    }
    if (f)
        fclose(f);
    return text;
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct sp_paje_event *append(struct sp_paje *p)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 4096;

        p->events = realloc(p->events, cap * sizeof *p->events);
        SP_NEED(p->events, "trace: no memory for %zu events", cap);
        p->cap = cap;
    }
    return &p->events[p->n++];
}

static void read_event(struct sp_paje *p, char *line)
{
    char *rest;
    int code = (int)strtol(line, &rest, 10);
    double ms = 0;

    if (rest == line || code < 0 || code >= SP_PAJE_CODES)
        return;
    if (code >= SP_PAJE_CREATE)
        ms = strtod(rest, &rest);
    rest += strspn(rest, BLANKS);
    for (char *end = rest + strlen(rest); end > rest && strchr(BLANKS, end[-1]);)
        *--end = '\0';
    *append(p) = (struct sp_paje_event){.code = code, .ms = ms, .rest = strdup(rest)};
}

void sp_paje_add(struct sp_paje *p, int code, double ms, const char *fmt, ...)
{
    char *rest = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&rest, fmt, ap) < 0)
        rest = NULL;
    va_end(ap);
    *append(p) = (struct sp_paje_event){.code = code, .ms = ms, .rest = rest};
}

void sp_paje_remove(struct sp_paje_event *e)
{
    free(e->rest);
    e->rest = NULL;
}

void sp_paje_append(struct sp_paje *p, struct sp_paje_event *e)
{
    *append(p) = *e;
    e->rest = NULL;
}

int sp_paje_read(const char *path, struct sp_paje *p)
{
    struct sp_paje_kind *kind = NULL;
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;

    *p = (struct sp_paje){0};
    if (!f)
        return sp_error(errno, "trace: cannot read %s: %s", path, strerror(errno));
    while (getline(&line, &size, f) > 0)
        if (*line == '%')
            read_header(p, line, &kind);
        else
            read_event(p, line);
    free(line);
    fclose(f);
    if (!p->kinds[SP_PAJE_TASK].event || !p->n)
        return sp_error(EINVAL, "trace: %s is no trace that starpu_fxt_tool has made", path);
    return 0;
}

void sp_paje_destroy(struct sp_paje *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->events[i].rest);
    free(p->events);
    for (int c = 0; c < SP_PAJE_CODES; c++)
        forget_kind(&p->kinds[c]);
    *p = (struct sp_paje){0};
}

/* ---- writing --------------------------------------------------------------------------------- */

static int rank_of(const struct sp_paje_event *e)
{
    return e->code < SP_PAJE_CREATE ? 0 : e->code == SP_PAJE_CREATE ? 1 : 2;
}

/* Events of the same time keep their order. */
static int in_turn(const void *x, const void *y)
{
    const struct sp_paje_event *a = x, *b = y;

    if (rank_of(a) != rank_of(b))
        return rank_of(a) - rank_of(b);
    if (rank_of(a) == 2 && (a->ms < b->ms || b->ms < a->ms))
        return a->ms < b->ms ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

void sp_paje_sort(struct sp_paje *p)
{
    for (size_t i = 0; i < p->n; i++)
        p->events[i].place = i;
    if (p->n)
        qsort(p->events, p->n, sizeof *p->events, in_turn);
}

static void write_kind(FILE *f, int code, const struct sp_paje_kind *kind)
{
    fprintf(f, "%%EventDef\t%s\t%d\n", kind->event, code);
    for (int i = 0; i < kind->n; i++) {
        const char *name = kind->field[i], *type = "string";

        if (!strcmp(name, "Time"))
            type = "date";
        else if (!strcmp(name, "Color"))
            type = "color";
        else if (!strcmp(name, "Value") && strstr(kind->event, "Variable"))
            type = "double";
        fprintf(f, "%%\t%s\t%s\n", name, type);
    }
    fprintf(f, "%%EndEventDef\n");
}

int sp_paje_write(const struct sp_paje *p, const char *path)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return sp_error(errno, "trace: cannot write %s: %s", path, strerror(errno));
    for (int c = 0; c < SP_PAJE_CODES; c++)
        if (p->kinds[c].event)
            write_kind(f, c, &p->kinds[c]);
    for (size_t i = 0; i < p->n; i++) {
        const struct sp_paje_event *e = &p->events[i];

        if (e->rest && e->code >= SP_PAJE_CREATE)
            fprintf(f, "%d\t%.9f\t%s\n", e->code, e->code == SP_PAJE_CREATE ? 0 : e->ms, e->rest);
        else if (e->rest)
            fprintf(f, "%d\t%s\n", e->code, e->rest);
    }
    if (ferror(f) | fclose(f))
        return sp_error(EIO, "trace: cannot write %s", path);
    return 0;
}
