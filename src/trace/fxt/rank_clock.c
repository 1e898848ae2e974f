/* The clocks of ranks, and all times of a trace on rank 0's. */
#include "trace/fxt/rewrite.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sp_rank_clock_settle(struct sp_rank_clock *c)
{
    struct sp_rank_offset *o = c->offset;
    const int better = o[1].round_trip_ns < o[0].round_trip_ns;

    if (fabs(o[1].offset_ns - o[0].offset_ns) > (o[0].round_trip_ns + o[1].round_trip_ns) / 2)
        return;
    o[!better].offset_ns = o[better].offset_ns;
    o[!better].round_trip_ns = o[better].round_trip_ns;
}

/* The time by which a mark is later in the trace than in the clock, up to a constant. */
static double lag_ns(double trace_ms, double local_ns)
{
    return trace_ms * 1e6 - local_ns;
}

void sp_rank_clock_mark(struct sp_rank_clock *c, int end, double trace_ms, double local_ns)
{
    /* The event comes after the clock is read, so the mark with the least lag is the most
     * precise. */
    if (!c->mark[end].local_ns ||
        lag_ns(trace_ms, local_ns) < lag_ns(c->mark[end].trace_ms, c->mark[end].local_ns)) {
        c->mark[end].trace_ms = trace_ms;
        c->mark[end].local_ns = local_ns;
    }
}

/* Evaluates the line through two points. */
static double line(double x, double x0, double y0, double x1, double y1)
{
    return x1 > x0 ? y0 + (x - x0) / (x1 - x0) * (y1 - y0) : y0;
}

double sp_rank_clock_global(const struct sp_rank_clock *c, double local_ns)
{
    const struct sp_rank_offset *o = c->offset;

    return local_ns - line(local_ns, o[0].local_ns, o[0].offset_ns, o[1].local_ns, o[1].offset_ns);
}

double sp_rank_clock_of_trace(const struct sp_rank_clock *c, double trace_ms)
{
    return sp_rank_clock_global(c, line(trace_ms, c->mark[0].trace_ms, c->mark[0].local_ns,
                                        c->mark[1].trace_ms, c->mark[1].local_ns));
}

/* ---- the trace ------------------------------------------------------------------------------- */

int sp_fxt_container_rank(const char *container, int ranks)
{
    char *end;
    long rank = strtol(container, &end, 10);

    if (ranks == 1)
        return 0;
    return end != container && *end == '_' && rank >= 0 && rank < ranks ? (int)rank : -1;
}

static int rank_of(const struct sp_paje *p, int code, const struct sp_paje_words *w, int ranks)
{
    static const char *const names[] = {"Alias", "StartContainer", "EndContainer", "Container",
                                        "Name"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int at = sp_paje_field(p, code, names[i]);

        if (at >= 0 && at < w->n)
            return sp_fxt_container_rank(w->at[at], ranks);
    }
    return -1;
}

static int read_marks(const struct sp_paje *p, struct sp_rank_clock *clocks, int ranks)
{
    static const char mark[] = "\"starpipe clock ";
    struct sp_paje_words w = {0};

    for (size_t i = 0; i < p->n; i++) {
        const struct sp_paje_event *e = &p->events[i];
        const char *text = e->rest ? strstr(e->rest, mark) : NULL;
        int end = text && !strncmp(text + sizeof mark - 1, "end ", 4), rank;

        if (!text)
            continue;
        sp_paje_split(e->rest, &w);
        rank = rank_of(p, e->code, &w, ranks);
        if (rank >= 0)
            sp_rank_clock_mark(&clocks[rank], end, e->ms,
                               strtod(text + strcspn(text, "0123456789"), NULL));
    }
    sp_paje_words_free(&w);
    for (int r = 0; r < ranks; r++)
        if (!clocks[r].mark[0].local_ns || !clocks[r].mark[1].local_ns)
            return sp_error(
                EINVAL,
                "trace: the events that say how late it is are not in the trace of rank "
                "%d: was it full (STARPU_TRACE_BUFFER_SIZE), or without user events "
                "(STARPU_FXT_EVENTS)?",
                r);
    return 0;
}

int sp_fxt_align(struct sp_paje *p, struct sp_rank_clock *clocks, int ranks, double *zero_ns)
{
    struct sp_paje_words w = {0};
    double zero = INFINITY;
    int err = 0;

    if (ranks > 1)
        err = read_marks(p, clocks, ranks);
    else /* the trace's own clock */
        clocks[0] = (struct sp_rank_clock){.mark = {{0, 0}, {1, 1e6}}};
    for (size_t i = 0; !err && i < p->n; i++) {
        struct sp_paje_event *e = &p->events[i];
        int rank;

        if (e->code < SP_PAJE_CREATE || e->ms <= 0)
            continue;
        sp_paje_split(e->rest, &w);
        rank = rank_of(p, e->code, &w, ranks);
        if (rank >= 0)
            e->ms = sp_rank_clock_of_trace(&clocks[rank], e->ms) / 1e6;
        zero = fmin(zero, e->ms);
    }
    for (size_t i = 0; !err && i < p->n; i++)
        if (p->events[i].code >= SP_PAJE_CREATE && p->events[i].ms > 0)
            p->events[i].ms -= zero;
    sp_paje_words_free(&w);
    *zero_ns = zero * 1e6;
    return err;
}
