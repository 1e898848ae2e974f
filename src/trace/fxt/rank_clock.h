/*
 * Puts all ranks of a trace on one clock. starpu_fxt_tool aligns ranks by when they left a barrier,
 * which on a crowded machine differs by milliseconds. Marks in the trace (transport/messages.h)
 * give a rank's times back in its own clock; offsets that the run measured at its start and its end
 * convert these to rank 0's clock. Times between the two are interpolated, which removes the drift.
 */
#ifndef SP_RANK_CLOCK_H
#define SP_RANK_CLOCK_H

/* As measured: nanoseconds of the rank's clock. */
struct sp_rank_offset {
    double local_ns, offset_ns, round_trip_ns;
};

struct sp_rank_clock {
    struct {
        double trace_ms, local_ns; /* the tightest mark; local_ns 0: none */
    } mark[2];                     /* at the start, at the end */
    struct sp_rank_offset offset[2];
};

/* Call this once the offsets are set. If they are equal within their errors, both become the more
 * precise one. An unproven drift counts as none: otherwise one bad exchange would distort the whole
 * run. */
void sp_rank_clock_settle(struct sp_rank_clock *c);

/* Records an event at `trace_ms` of the trace that says that the clock was at `local_ns` just
 * before; `end` is 0 at the start of the run, 1 at its end. */
void sp_rank_clock_mark(struct sp_rank_clock *c, int end, double trace_ms, double local_ns);

/* Converts a time of the rank's clock, or of the trace, to rank 0's clock; nanoseconds. */
double sp_rank_clock_global(const struct sp_rank_clock *c, double local_ns);
double sp_rank_clock_of_trace(const struct sp_rank_clock *c, double trace_ms);

#endif
