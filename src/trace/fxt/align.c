#include "trace/fxt/rewrite.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
