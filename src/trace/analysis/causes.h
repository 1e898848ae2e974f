/* Splits a step's time by cause: replays it several times, each with one cause more than before. */
#ifndef SP_CAUSES_H
#define SP_CAUSES_H

#include "trace/analysis/replay.h"
#include "trace/analysis/waits.h"
#include <stdio.h>

/* Causes that make a step longer than its order, each counted on top of those before it. */
enum sp_cause {
    SP_CAUSE_SCHEDULE, /* the order: every op computes for the median of its kind (ops of one stage,
                        * pass, part, chunk and slice), each stage has its own worker with a core,
                        * and nothing else takes time */
    SP_CAUSE_OPS,      /* ops that took more or less than usual for their kind */
    SP_CAUSE_CORES,    /* workers without a core, stages that share a worker */
    SP_CAUSE_OFFLOAD,  /* evictions and fetches */
    SP_CAUSE_RUNTIME,  /* submission, and delays of tasks that were ready */
    SP_CAUSE_MESSAGES, /* in transit between processes */
    SP_CAUSE_REST,     /* also overlap with neighbouring steps */
    SP_CAUSES
};

/* A step from its first op to its last, split by cause; both lists add up to the measured
 * values. */
struct sp_causes {
    double ms[SP_CAUSES], bubble[SP_CAUSES]; /* bubble: parts of 1 */
    double measured_ms, measured_bubble;     /* means over the stages */
};

/* 0 or -ENOMEM. */
int sp_causes_find(const struct sp_waits *w, struct sp_causes *causes);

/* Sets compute[units] and part[ops] to the medians of each kind. 0 or -ENOMEM. */
int sp_causes_usual(const struct sp_waits *w, double *compute, double *part);

/* Makes the record of the step with the first cause alone: as the schedule would have it. The
 * caller destroys it. 0 or -ENOMEM. */
int sp_causes_expected(const struct sp_waits *w, struct sp_timeline *expected);

/* Prints rows of causes that add up to the step. */
void sp_causes_print(const struct sp_waits *w, const struct sp_causes *c, FILE *out);

/* Prints a line for each stage, with the parts of the step that some stage has. */
void sp_waits_print(const struct sp_waits *w, FILE *out);

#endif
