/* What the list simulation expects of a step, from the op times that a step measured. */
#ifndef SP_EXPECTED_H
#define SP_EXPECTED_H

#include "graphs/step.h"

/*
 * What the ops of each global stage cost on average in `report`, in milliseconds, as factors of
 * costs of 1. 0 or -ENOMEM. To be freed.
 */
int sp_expected_costs(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_costs *costs);
void sp_expected_costs_free(struct sp_costs *costs);

/*
 * Times of `plan`, in milliseconds, as the schedule would have them: every op takes the median time of
 * its kind in `report` (ops of one stage, pass, part, chunk and slice; waiting for a core left out),
 * each stage has a worker of its own, the runtime and messages take no time. Others go on when an op has
 * written what they wait for; weight gradients come after that. 0, or an error of sp_replay_times.
 */
int sp_expected_times(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_times *times);

/* What makes a step longer than that, each counted with those before it in place. */
enum sp_cause {
    SP_CAUSE_SCHEDULE, /* sp_expected_times */
    SP_CAUSE_OPS,      /* ops that took more or less than is usual of their kind */
    SP_CAUSE_CORES,    /* workers without a core, stages that share a worker */
    SP_CAUSE_RUNTIME,  /* between tasks that were ready and the start of them */
    SP_CAUSE_MESSAGES, /* on their way between processes */
    SP_CAUSE_REST,     /* and steps that overlap with their neighbours */
    SP_CAUSES
};

/* A step from its first op to its last, split; both lists add up to what was measured. */
struct sp_causes {
    double ms[SP_CAUSES], bubble[SP_CAUSES]; /* bubble: parts of 1 */
    double measured_ms, measured_bubble;     /* means over the stages */
};

/* process[stages]: where stages run. 0, or an error of sp_replay_times. */
int sp_expected_causes(const struct sp_plan *plan, const struct sp_step_report *report,
                       const int *process, struct sp_causes *causes);

#endif
