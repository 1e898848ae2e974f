/* A step's time split by cause: replays of it, each with one cause more than the one before. */
#ifndef SP_CAUSES_H
#define SP_CAUSES_H

#include "trace/analysis/replay.h"

/* What makes a step longer than its order, each counted with those before it in place. */
enum sp_cause {
    SP_CAUSE_SCHEDULE, /* the order: every op computes for the median of its kind (ops of one stage, pass,
                        * part, chunk and slice), each stage has a worker of its own with a core, nothing
                        * else takes time */
    SP_CAUSE_OPS,      /* ops that took more or less than is usual of their kind */
    SP_CAUSE_CORES,    /* workers without a core, stages that share a worker */
    SP_CAUSE_OFFLOAD,  /* tensors that leave memory and come back */
    SP_CAUSE_RUNTIME,  /* submission, and between tasks that were ready and the start of them */
    SP_CAUSE_MESSAGES, /* on their way between processes */
    SP_CAUSE_REST,     /* and steps that overlap with their neighbours */
    SP_CAUSES
};

/* A step from its first op to its last, split; both lists add up to what was measured. */
struct sp_causes {
    double ms[SP_CAUSES], bubble[SP_CAUSES]; /* bubble: parts of 1 */
    double measured_ms, measured_bubble;     /* means over the stages */
};

/* 0 or -ENOMEM. */
int sp_causes_find(const struct sp_waits *w, struct sp_causes *causes);

/* The medians of each kind: compute[units], part[ops]. 0 or -ENOMEM. */
int sp_causes_usual(const struct sp_waits *w, double *compute, double *part);

/* The record of the step with the first cause alone: what the schedule would have. To be destroyed. 0 or
 * -ENOMEM. */
int sp_causes_expected(const struct sp_waits *w, struct sp_timeline *expected);

#endif
