#include "trace/fxt/traced_run.h"
#include <math.h>

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
