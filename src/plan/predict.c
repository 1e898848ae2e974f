#include "plan/predict.h"
#include "plan/simulation/machine_network.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Whether ops are shared out: by devices of a stage, or stages. */
static bool is_shared_out(const struct sp_predict_request *r)
{
    return r->plan->family->shares_attention ||
           r->shape->context * r->shape->tensor * r->terms.devices > 1;
}

int sp_predict(const struct sp_predict_request *request, struct sp_prediction *p)
{
    const struct sp_plan *plan = request->plan;
    const struct sp_machine_network links = {.machine = request->terms.machine,
                                             .stages = plan->layout.stages,
                                             .devices = request->terms.devices,
                                             .members =
                                                 request->shape->pipelines * request->shape->tensor,
                                             .process = request->terms.process,
                                             .tier = request->tier};
    const struct sp_network network = sp_network_of_machine(&links);
    bool apart = request->exchanges && is_shared_out(request);
    int err;

    *p = (struct sp_prediction){0};
    p->by_op = sp_op_times(plan, request->shape, &request->terms);
    p->again_by_op = sp_op_times_again(plan, request->shape, &request->terms);
    p->costs = (struct sp_costs){.by_op = p->by_op, .again_by_op = p->again_by_op};
    if (apart)
        p->alone = sp_op_times_alone(plan, request->shape, &request->terms);
    err = p->by_op && p->again_by_op && (p->alone || !apart)
              ? sp_step_messages_create(plan, request->shape, &p->messages)
              : -ENOMEM;
    err = err ? err
              : sp_simulate(plan, &p->costs, &p->messages, &network, request->worker, &p->times,
                            &p->when);
    if (err) {
        sp_prediction_destroy(p);
        return err;
    }
    p->step_ms = p->times.makespan;
    for (int i = 0; i < p->messages.n; i++)
        p->step_ms = fmax(p->step_ms, p->when.arrived[i]);
    p->update_ms = sp_update_times(plan, request->shape, &request->terms);
    p->share_ms = sp_share_times(plan, request->shape, &request->terms);
    p->step_ms += p->share_ms + p->update_ms;
    return 0;
}

int sp_predict_costs(const struct sp_plan *plan, const struct sp_costs *costs,
                     struct sp_prediction *p)
{
    const struct sp_unit_network unit = {.plan = plan, .costs = costs};
    const struct sp_network network = sp_network_of_costs(&unit);
    int err;

    *p = (struct sp_prediction){.costs = *costs};
    err = sp_step_messages_create(plan, NULL, &p->messages);
    err =
        err ? err : sp_simulate(plan, &p->costs, &p->messages, &network, NULL, &p->times, &p->when);
    if (err)
        sp_prediction_destroy(p);
    return err;
}

double sp_prediction_exchange(const struct sp_plan *plan, const struct sp_prediction *p, int stage,
                              const struct sp_op *op)
{
    int id = plan->family->id(&plan->layout, stage, op);

    return p->alone ? p->by_op[id] - p->alone[id] : 0;
}

void sp_prediction_destroy(struct sp_prediction *p)
{
    free(p->by_op);
    free(p->again_by_op);
    free(p->alone);
    sp_step_messages_destroy(&p->messages);
    sp_message_times_destroy(&p->when);
    sp_times_destroy(&p->times);
    *p = (struct sp_prediction){0};
}
