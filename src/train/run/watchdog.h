/*
 * A thread that ends a process in which nothing moves any more, and prints what it was doing. There
 * is one for the process, from its first line to its last. Processes tell each other that they move
 * (transport/beats.h): one that waits for another's long save does not count as stalled, and one
 * that waits for a stopped process does.
 */
#ifndef SP_WATCHDOG_H
#define SP_WATCHDOG_H

#include "graphs/graph.h"

/* The phase that a process is in. The comments say how long nothing may move in it, if that is
 * not the watchdog's `seconds`, and what happens to the process when it is asked to end
 * (sp_activity_ask_end). */
enum sp_phase {
    SP_PHASE_LAUNCH,   /* MPI's start and end: at least 6 s; ends when asked */
    SP_PHASE_PREPARE,  /* the same, at least 60 s; no limit while it computes (searches) */
    SP_PHASE_SETUP,    /* before the first step, after the last: at least 60 s; ends when asked */
    SP_PHASE_SAVE,     /* at least 60 s, unless it waits for others; 30 s when asked */
    SP_PHASE_STEP,     /* of the graph: `seconds`; when asked 3 s, unless a worker runs a task */
    SP_PHASE_EVALUATE, /* the same, but no ops are named */
    SP_PHASE_SAMPLE,   /* the same; ends when asked */
    SP_PHASE_WORDS,    /* printing at the end, which a reader may block for ever; ends when asked */
};

/*
 * Watches from here on; if it does already, changes `seconds`. 0: a stall ends nothing, but a
 * request to end does. All processes end with status 1 after a line, which names the op that each
 * local stage waits for if there is a graph. Time in which this process does not run (stopped,
 * suspended, swapped out) does not count. If no thread can be started, the process runs without a
 * watchdog.
 */
void sp_watchdog_start(double seconds);
bool sp_watchdog_runs(void);
void sp_watchdog_stop(void);

/* The command owns the process: it ends with its launcher and, when asked to, also outside of
 * all phases. */
void sp_watchdog_own_process(void);

/* The rank that lines name, and the graph whose ops they name; NULL before and after the graph's
 * life. */
void sp_watchdog_know_rank(int rank);
void sp_watchdog_know_graph(const struct sp_graph *g);

/* The main thread calls these around a phase, printed as "while WHAT". Pairs nest. Outside of
 * all of them, when an application does its own work, nothing is expected to move and MPI is
 * left alone. */
void sp_watchdog_begin(enum sp_phase phase, const char *what, ...)
    __attribute__((format(printf, 2, 3)));
void sp_watchdog_end(void);

/* The run ends, as it was asked to: it may finish what is left to do, as long as something
 * moves. */
void sp_watchdog_end_begun(void);

/*
 * ---- stall.c: when does a run count as stalled? --------------------------------------------------
 *
 * When nothing has moved for the timeout, in which this process ran. Pure: at each tick the caller passes the time and how
 * often something has moved.
 */

struct sp_stall {
    double timeout_us, tick_us;
    double last_us;      /* time of the last tick */
    double still_us;     /* counted time since something moved */
    unsigned long moves; /* as of the last tick */
};

/* Starts to count. The caller ticks every tick_us from here on: a tenth of the timeout, at least
 * 10 ms and at most 1 s. */
void sp_stall_start(struct sp_stall *s, double timeout_us, double now_us, unsigned long moves);

/*
 * True when nothing has moved for the timeout. A tick that comes far too late means that the
 * process was stopped, the machine suspended or its memory swapped out; then the others that it
 * waits for get the full timeout again. `paused`: nothing is expected to move, and the time does
 * not count.
 */
bool sp_stall_tick(struct sp_stall *s, double now_us, unsigned long moves, bool paused);

#endif
