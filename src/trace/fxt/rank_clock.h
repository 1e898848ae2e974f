/*
 * One time for all ranks of a trace. starpu_fxt_tool aligns ranks by when they left a barrier, which on a
 * crowded machine is milliseconds apart. Marks in the trace (transport/message_log.h) give a rank's times back
 * in its own clock; offsets that the run measured at its start and its end bring that to rank 0's clock. What
 * lies between is interpolated, which takes the drift out.
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
    } mark[2];                     /* of the start, of the end */
    struct sp_rank_offset offset[2];
};

/* To be called once the offsets are set: if they are the same as far as they are known, both become the one that
 * is known better. A drift that was not seen is none: one bad exchange would put it into all of the run. */
void sp_rank_clock_settle(struct sp_rank_clock *c);

/* An event at `trace_ms` of the trace says that the clock was at `local_ns` just before; `end` is 0 at the start
 * of the run, 1 at its end. */
void sp_rank_clock_mark(struct sp_rank_clock *c, int end, double trace_ms, double local_ns);

/* A time of the rank's clock in rank 0's, and a time of the trace; nanoseconds. */
double sp_rank_clock_global(const struct sp_rank_clock *c, double local_ns);
double sp_rank_clock_of_trace(const struct sp_rank_clock *c, double trace_ms);

#endif
