#include "train/run/watchdog.h"
#include <math.h>

/* A busy machine delays a tick by at most this much; such a tick counts, as two ticks at most. */
static const double LATE_US = 2e5;

void sp_stall_start(struct sp_stall *s, double timeout_us, double now_us, unsigned long moves)
{
    *s = (struct sp_stall){
        .timeout_us = timeout_us,
        .tick_us = fmin(fmax(timeout_us / 10, 1e4), 1e6),
        .last_us = now_us,
        .moves = moves,
    };
}

bool sp_stall_tick(struct sp_stall *s, double now_us, unsigned long moves, bool paused)
{
    double took = now_us - s->last_us, most = 2 * s->tick_us;

    if (paused || moves != s->moves || took > most + LATE_US)
        s->still_us = 0;
    else
        s->still_us += fmin(took, most);
    s->last_us = now_us;
    s->moves = moves;
    return s->still_us >= s->timeout_us;
}
