/* Predicts a step of a plan on a described machine: the one prediction that every command shows.
 * Pure. */
#ifndef SP_PREDICT_H
#define SP_PREDICT_H

#include "offload/eviction.h"
#include "plan/cost/op_times.h"
#include "plan/simulation/ready.h"
#include "plan/simulation/simulate.h"
#include "plan/simulation/variation.h"

/* How a step deviates from its plan. */
struct sp_execution {
    const struct sp_variation *variation; /* NULL: ops and messages take their predicted times */
    const struct sp_ready_rule *ready;    /* NULL: stages keep to their programs */
    struct sp_plan *ran; /* with `ready`: the plan; its programs become those that stages ran */
};

struct sp_predict_request {
    const struct sp_plan *plan;
    const struct sp_shape *shape;
    struct sp_op_terms terms;
    const double *measured;    /* [ids] ms that ops took in a run; NULL: they are priced */
    const int *worker;         /* [stages] as sp_simulate has it; NULL: each stage has its own */
    struct sp_tier_rates tier; /* rates of a stage's tier, for plan->evictions */
    bool exchanges; /* also price ops without exchanges between devices or stages of a slot */
    const struct sp_execution *execution; /* NULL: as planned */
};

/* Times in milliseconds. */
struct sp_prediction {
    double *by_op; /* the ops' times in `costs` */
    double *again_by_op;
    double *alone; /* the same without exchanges; NULL: not requested, or equal */
    struct sp_costs costs;
    struct sp_step_messages messages;
    struct sp_message_times when;
    struct sp_times times;
    double update_ms; /* of the optimizer, on the stage that takes longest */
    double share_ms;  /* until the pipelines that share the step have summed their gradients */
    double step_ms;   /* until the last op and message, then share_ms and update_ms */
};

/* Predicts a step. 0 or -ENOMEM; then there is nothing to destroy. */
int sp_predict(const struct sp_predict_request *request, struct sp_prediction *prediction);
/* Predicts a step at given costs, those of messages included (`--cost comm=X,wire=X`): no bytes, no
 * update. 0 or -ENOMEM. */
int sp_predict_costs(const struct sp_plan *plan, const struct sp_costs *costs,
                     struct sp_prediction *prediction);
int sp_predict_costs_of(const struct sp_plan *plan, const struct sp_costs *costs,
                        const struct sp_execution *execution, struct sp_prediction *prediction);
/* Time of an op that is spent on exchanges between devices of its stage, or on waiting for other
 * stages of its slot. */
double sp_prediction_exchange(const struct sp_plan *plan, const struct sp_prediction *prediction,
                              int stage, const struct sp_op *op);
void sp_prediction_destroy(struct sp_prediction *prediction);

#endif
