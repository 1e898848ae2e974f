#include "plan/predict.h"
#include "plan/simulation/machine_network.h"
#include "policies/simulation/costs.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* True if several devices of a stage, or several stages, share ops. */
static bool is_shared_out(const struct sp_predict_request *r)
{
    return r->plan->family->facts.shares_attention ||
           r->shape->context * r->shape->tensor * r->terms.devices > 1;
}

/* Lengthens an op. */
static void stretch(struct sp_prediction *p, int id, double times)
{
    p->by_op[id] *= times;
    p->again_by_op[id] *= times;
    if (p->alone)
        p->alone[id] *= times;
}

/* Lengthens the ops of a stage by `ms` in all, each in proportion to its time. */
static void lengthen(const struct sp_plan *plan, int stage, double ms, struct sp_prediction *p)
{
    const struct sp_program *program = &plan->programs[stage];
    double all = 0;

    for (int k = 0; k < program->n; k++)
        all += p->by_op[plan->family->id(&plan->layout, stage, &program->ops[k])];
    for (int k = 0; all > 0 && k < program->n; k++)
        stretch(p, plan->family->id(&plan->layout, stage, &program->ops[k]), 1 + ms / all);
}

/* Ops take as long as in a run. */
static void take_measured(const struct sp_predict_request *r, struct sp_prediction *p)
{
    const struct sp_plan *plan = r->plan;

    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            int id = plan->family->id(&plan->layout, s, &plan->programs[s].ops[k]);

            if (p->by_op[id] > 0)
                stretch(p, id, r->measured[id] / p->by_op[id]);
        }
}

/* CPU devices copy their evictions themselves, within the time of their ops. All cores of a node
 * together are as fast as the disk when both ways are busy. 0 or -ENOMEM. */
static int take_cores(const struct sp_predict_request *r, struct sp_prediction *p)
{
    const struct sp_machine *m = r->terms.machine;
    int stages = r->plan->layout.stages;
    double *moved_s, per_byte_s;

    if (!m || r->measured || !r->plan->evictions || !sp_machine_is_cpu(m) || m->disk.write <= 0)
        return 0;
    per_byte_s = m->devices_per_node / (2 * m->disk.both);
    moved_s = calloc((size_t)stages, sizeof *moved_s);
    if (!moved_s)
        return -ENOMEM;
    for (int i = 0; i < p->messages.n; i++) {
        const struct sp_step_message *move = &p->messages.message[i];

        if (sp_step_message_is_move(move))
            moved_s[move->from] += per_byte_s * (double)move->bytes;
    }
    for (int s = 0; s < stages; s++)
        lengthen(r->plan, s, 1e3 * moved_s[s], p);
    free(moved_s);
    return 0;
}

/* Simulates the step at the costs in *p. */
static int simulate(const struct sp_predict_request *r, const struct sp_network *network,
                    struct sp_prediction *p)
{
    const struct sp_execution *e = r->execution;
    struct sp_varied_network varied;
    struct sp_network slow = *network;
    int err = sp_step_messages_create(r->plan, r->shape, &p->messages);

    err = err ? err : take_cores(r, p);
    if (e && e->variation) {
        varied = (struct sp_varied_network){.network = network, .variation = e->variation};
        slow = sp_network_varied(&varied);
        sp_variation_apply(e->variation, r->plan,
                           (double *const[]){p->by_op, p->again_by_op, p->alone}, 3);
    }
    if (!err && e && e->ready)
        return sp_simulate_ready(&(struct sp_ready_request){.plan = e->ran,
                                                            .costs = &p->costs,
                                                            .messages = &p->messages,
                                                            .network = &slow,
                                                            .rule = e->ready},
                                 &p->times, &p->when);
    return err ? err
               : sp_simulate(&(struct sp_simulated_step){.plan = r->plan,
                                                         .costs = &p->costs,
                                                         .messages = &p->messages,
                                                         .network = &slow,
                                                         .worker = r->worker},
                             &p->times, &p->when);
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
    err = p->by_op && p->again_by_op && (p->alone || !apart) ? 0 : -ENOMEM;
    if (!err && request->measured)
        take_measured(request, p);
    err = err ? err : simulate(request, &network, p);
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

/* ---- unit costs ------------------------------------------------------------------------------ */

/* A step at given costs. */
struct unit {
    const struct sp_plan *plan;
    const struct sp_costs *costs;
};

/* Every message occupies a port out of its stage and one into the other for costs->wire times its
 * part of a micro-batch, and arrives costs->comm later. */
static struct sp_route route_of_costs(const void *arg, const struct sp_step_message *m)
{
    const struct unit *unit = arg;
    const struct sp_layout *lay = &unit->plan->layout;
    double share = sp_step_message_share(unit->plan, m), wire = unit->costs->wire * share;

    if (!sp_step_message_is_sent(m))
        return (struct sp_route){.out = -1, .in = -1};
    return (struct sp_route){.out = wire > 0 ? m->from : -1,
                             .in = lay->stages + m->to,
                             .busy = wire / lay->slices,
                             .delay = unit->costs->comm * share};
}

int sp_predict_costs(const struct sp_plan *plan, const struct sp_costs *costs,
                     struct sp_prediction *p)
{
    return sp_predict_costs_of(plan, costs, NULL, p);
}

/* Variation needs a cost for each single op: lists them. */
static int list_costs(const struct sp_plan *plan, struct sp_prediction *p)
{
    size_t ids = (size_t)plan->family->ids(&plan->layout) + 1;
    double *by_op = calloc(ids, sizeof *by_op), *again = calloc(ids, sizeof *again);

    for (int s = 0; by_op && again && s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];
            int id = plan->family->id(&plan->layout, s, op);

            by_op[id] = sp_op_cost(plan, &p->costs, s, op);
            again[id] = sp_op_again(plan, &p->costs, s, op);
        }
    p->by_op = by_op;
    p->again_by_op = again;
    p->costs.by_op = by_op;
    p->costs.again_by_op = again;
    return by_op && again ? 0 : -ENOMEM;
}

int sp_predict_costs_of(const struct sp_plan *plan, const struct sp_costs *costs,
                        const struct sp_execution *execution, struct sp_prediction *p)
{
    const struct unit unit = {.plan = plan, .costs = costs};
    const struct sp_network network = {
        .ports = 2 * plan->layout.stages, .route = route_of_costs, .arg = &unit};
    const struct sp_predict_request request = {.plan = plan, .execution = execution};
    int err = 0;

    *p = (struct sp_prediction){.costs = *costs};
    if (execution && execution->variation)
        err = list_costs(plan, p);
    err = err ? err : simulate(&request, &network, p);
    if (err)
        sp_prediction_destroy(p);
    return err;
}

double sp_prediction_exchange(const struct sp_plan *plan, const struct sp_prediction *p, int stage,
                              const struct sp_op *op)
{
    int id = plan->family->id(&plan->layout, stage, op);

    return p->alone ? fmax(0, p->by_op[id] - p->alone[id])
                    : 0; /* less: it overlaps with another op */
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
