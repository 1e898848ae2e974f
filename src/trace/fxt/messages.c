#include "trace/fxt/traced_run.h"
#include "sp_error.h"
#include "sp_grow.h"
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One side of a message. */
struct side {
    bool sends;
    struct sp_fxt_message m; /* start and end are of this side, in its own clock */
};

struct sides {
    int n;
    size_t cap;
    struct side *at;
};

/* ---- a file ---------------------------------------------------------------------------------- */

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static int read_head(const char *path, const json_t *line, int rank, int ranks, double *run,
                     struct sp_rank_clock *clock)
{
    static const char *const ends[] = {"start", "end"};
    int of = (int)number(line, "ranks");

    if (!json_object_get(line, "run") || (int)number(line, "rank") != rank)
        return sp_error(EINVAL, "trace: %s is no file of the messages of rank %d", path, rank);
    if (of != ranks)
        return sp_error(EINVAL, "trace: %s is of a run of %d processes, and there are traces of %d",
                        path, of, ranks);
    if (rank > 0 && number(line, "run") != *run)
        return sp_error(EINVAL,
                        "trace: %s is of another run than rank 0's: take an empty directory "
                        "for each run",
                        path);
    *run = number(line, "run");
    for (int i = 0; i < 2; i++) {
        const json_t *p = json_object_get(line, ends[i]);

        clock->offset[i] = (struct sp_rank_offset){number(p, "local_ns"), number(p, "offset_ns"),
                                                   number(p, "round_trip_ns")};
    }
    sp_rank_clock_settle(clock);
    return 0;
}

static int read_message(const json_t *line, int rank, int ranks, struct side *s)
{
    const char *tensor = json_string_value(json_object_get(line, "tensor"));
    const char *handle = json_string_value(json_object_get(line, "handle"));
    const json_t *to = json_object_get(line, "to"), *from = json_object_get(line, "from");
    int peer = (int)json_integer_value(to ? to : from);

    if ((!to && !from) || !tensor || !handle || peer < 0 || peer >= ranks)
        return -EINVAL;
    *s = (struct side){.sends = to,
                       .m = {.src = to ? rank : peer,
                             .dst = to ? peer : rank,
                             .tag = json_integer_value(json_object_get(line, "tag")),
                             .bytes = json_integer_value(json_object_get(line, "bytes")),
                             .start_ns = number(line, "start_ns"),
                             .end_ns = number(line, "end_ns")}};
    snprintf(s->m.tensor, sizeof s->m.tensor, "%s", tensor);
    s->m.handle[!to] = strtoull(handle, NULL, 16);
    return 0;
}

static int read_file(const char *dir, int rank, struct sp_fxt_messages *m, double *run,
                     struct sides *sides)
{
    struct sp_rank_clock *clock = &m->clocks[rank];
    char path[PATH_MAX];
    json_error_t why;
    json_t *line;
    FILE *f;
    int err = 0;

    snprintf(path, sizeof path, "%s/messages_%d.jsonl", dir, rank);
    f = fopen(path, "r");
    if (!f)
        return sp_error(errno, "trace: cannot read %s, which a traced run leaves at its end: %s",
                        path, strerror(errno));
    for (int n = 1; !err && (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, &why)); n++) {
        if (n == 1) {
            err = read_head(path, line, rank, m->ranks, run, clock);
        } else {
            SP_NEED(sp_grow(&sides->at, (size_t)sides->n + 1, &sides->cap, sizeof *sides->at),
                    "trace: no memory for %d messages", sides->n);
            err = read_message(line, rank, m->ranks, &sides->at[sides->n++]);
            if (err)
                sp_error(EINVAL, "trace: %s:%d: no message", path, n);
        }
        json_decref(line);
    }
    if (!err && !feof(f))
        err = sp_error(EINVAL, "trace: %s: %s", path, why.text);
    fclose(f);
    return err;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Sorts by source, destination and tag, sends before receives, each by start: MPI keeps that
 * order. */
static int by_tag(const void *a, const void *b)
{
    const struct side *x = a, *y = b;

    if (x->m.src != y->m.src)
        return x->m.src < y->m.src ? -1 : 1;
    if (x->m.dst != y->m.dst)
        return x->m.dst < y->m.dst ? -1 : 1;
    if (x->m.tag != y->m.tag)
        return x->m.tag < y->m.tag ? -1 : 1;
    if (x->sends != y->sends)
        return x->sends ? -1 : 1;
    return (x->m.start_ns > y->m.start_ns) - (x->m.start_ns < y->m.start_ns);
}

static bool alike(const struct side *a, const struct side *b)
{
    return a->m.src == b->m.src && a->m.dst == b->m.dst && a->m.tag == b->m.tag;
}

static void join(struct sp_fxt_messages *m, const struct side *send, const struct side *receive)
{
    const struct sp_rank_clock *src = &m->clocks[send->m.src], *dst = &m->clocks[send->m.dst];
    struct sp_fxt_message *to = &m->message[m->n++];
    double late;

    *to = send->m;
    to->handle[1] = receive->m.handle[1];
    to->start_ns = sp_rank_clock_global(src, send->m.start_ns);
    to->sent_ns = sp_rank_clock_global(src, send->m.end_ns);
    to->posted_ns = sp_rank_clock_global(dst, receive->m.start_ns);
    to->end_ns = sp_rank_clock_global(dst, receive->m.end_ns);
    late = to->start_ns - to->end_ns;
    if (late > 0) { /* the error of the clocks exceeds the time of the message */
        to->end_ns = to->start_ns;
        m->turned++;
        m->turned_ns = late > m->turned_ns ? late : m->turned_ns;
    }
}

static int by_start(const void *a, const void *b)
{
    const struct sp_fxt_message *x = a, *y = b;

    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static int match(struct sides *s, struct sp_fxt_messages *m)
{
    m->message = calloc((size_t)s->n + 1, sizeof *m->message);
    if (!m->message)
        return sp_error(ENOMEM, "trace: no memory for %d messages", s->n);
    if (s->n)
        qsort(s->at, (size_t)s->n, sizeof *s->at, by_tag);
    for (int i = 0, next, sends; i < s->n; i = next) {
        const struct side *first = &s->at[i];

        for (next = i, sends = 0; next < s->n && alike(first, &s->at[next]); next++)
            sends += s->at[next].sends;
        if (2 * sends != next - i)
            return sp_error(
                EINVAL, "trace: rank %d sent %d messages of tag %lld to rank %d, which received %d",
                first->m.src, sends, (long long)first->m.tag, first->m.dst, next - i - sends);
        for (int k = 0; k < sends; k++)
            join(m, &s->at[i + k], &s->at[i + sends + k]);
    }
    if (m->n)
        qsort(m->message, (size_t)m->n, sizeof *m->message, by_start);
    return 0;
}

int sp_fxt_messages_read(const char *dir, int ranks, struct sp_fxt_messages *m)
{
    struct sides sides = {0};
    double run = 0;
    int err = 0;

    *m = (struct sp_fxt_messages){.ranks = ranks};
    m->clocks = calloc((size_t)ranks, sizeof *m->clocks);
    if (!m->clocks)
        return sp_error(ENOMEM, "trace: no memory for %d ranks", ranks);
    for (int r = 0; !err && ranks > 1 && r < ranks; r++)
        err = read_file(dir, r, m, &run, &sides);
    err = err ? err : match(&sides, m);
    free(sides.at);
    return err;
}

void sp_fxt_messages_destroy(struct sp_fxt_messages *m)
{
    free(m->message);
    free(m->clocks);
    *m = (struct sp_fxt_messages){0};
}
