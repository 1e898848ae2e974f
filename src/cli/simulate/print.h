/* How `simulate` prints a simulated step, beside what show predicts of the same order. */
#ifndef SP_SIMULATE_PRINT_H
#define SP_SIMULATE_PRINT_H

#include "plan/predict.h"
#include "simulate/run.h"

struct sp_simulate_print {
    const char *schedule, *model, *unit; /* of times: "ms", or "" for that of the costs */
    const struct sp_plan *plan;
    const struct sp_times *listed; /* the same as `show` predicts it */
    const struct sp_prediction *prediction;
    const struct sp_shape *shape;
    enum sp_recompute recompute;
    int every;
    const char *machine; /* or "" */
    const struct sp_simulated *simulated;
};

/* Each returns 0, or -errno after one line on stderr. */
int sp_simulate_text(const struct sp_simulate_print *p);
int sp_simulate_json(const struct sp_simulate_print *p);
/* Records and pictures of both, in an existing directory. */
int sp_simulate_trace(const struct sp_simulate_print *p, const char *dir);

#endif
