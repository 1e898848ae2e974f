/* Schedules at unit costs, as papers draw them: no machine, no model. */
#ifndef SP_REPRODUCE_THEORY_H
#define SP_REPRODUCE_THEORY_H

#include "model/shape.h"
#include "model/stash.h"

struct sp_theory {
    const char *schedule;
    int stages, micro_batches, slices; /* slices 0: one */
    int chunks, layers;                /* chunks 0: the schedule's; layers 0: one a chunk */
    const char *costs;                 /* of cli `--cost`; NULL: f = b = 1, w = 0 */
    double comm;                       /* besides */
    enum sp_recompute recompute;
};

struct sp_theory_result {
    double makespan, busy; /* busy: of the busiest stage */
    double bubble;         /* idle part of the time of all stages */
    double peak;           /* most activations of a stage, in micro-batches on a whole stage */
    int messages;
};

/* The list simulation. 0; or one line on stderr and -errno. */
int sp_theory_run(const struct sp_theory *theory, struct sp_theory_result *result);

/* Bytes of activations that a stage holds at its peak. */
int sp_theory_activations(const struct sp_theory *theory, const struct sp_shape *shape, int stage,
                          double *bytes);

#endif
