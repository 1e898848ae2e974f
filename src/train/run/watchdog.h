/*
 * A thread that ends a process in which nothing moves any more, and says what it was at; one for the process,
 * from its first line to its last. Processes tell each other that they move (transport/beats.h), so that one
 * that waits for another's long save does not count as stalled, and one that waits for a stopped process does.
 */
#ifndef SP_WATCHDOG_H
#define SP_WATCHDOG_H

#include "graphs/graph.h"

/* A process is at one of these. The comments say how long nothing may move then, if that is not the watchdog's
 * `seconds`, and what becomes of the process when its end is asked for (sp_activity_ask_end). */
enum sp_phase {
    SP_PHASE_LAUNCH, /* MPI's start and end: at least 6 s; ends when asked */
    SP_PHASE_PREPARE, /* likewise, at least 60 s; as long as it computes: searches take what they take */
    SP_PHASE_SETUP,    /* before the first step, after the last: at least 60 s; ends when asked */
    SP_PHASE_SAVE,     /* at least 60 s, unless it waits for others; 30 s when asked */
    SP_PHASE_STEP,     /* of the graph: `seconds`; when asked 3 s, unless a worker runs a task */
    SP_PHASE_EVALUATE, /* the same, but no ops are named */
    SP_PHASE_SAMPLE,   /* likewise; ends when asked */
    SP_PHASE_WORDS, /* printing at the end, which a reader may hold up for ever; ends when asked */
};

/*
 * Watches from here on, or from here on with other `seconds`; 0: a stall ends nothing, what is asked for does.
 * All processes end with status 1 after a line, the op that each local stage waits for where there is a graph.
 * Time in which this process does not run (stopped, suspended, swapped out) does not count. Without a
 * thread the process goes on without.
 */
void sp_watchdog_start(double seconds);
bool sp_watchdog_runs(void);
void sp_watchdog_stop(void);

/* The process is the command's alone: it ends with its launcher, and, when asked to, outside of all phases too. */
void sp_watchdog_own_process(void);

/* The rank that lines name; the graph whose ops they name: NULL before and after it. */
void sp_watchdog_know_rank(int rank);
void sp_watchdog_know_graph(const struct sp_graph *g);

/* By the main thread: from here on it is at `what`, printed as "while WHAT". Pairs nest; outside of all of
 * them, where an application goes its own ways, nothing is expected to move and MPI is left alone. */
void sp_watchdog_begin(enum sp_phase phase, const char *what, ...)
    __attribute__((format(printf, 2, 3)));
void sp_watchdog_end(void);

/* The run ends, as it was asked to: what is left to do goes on, as long as it moves. */
void sp_watchdog_end_begun(void);

#endif
