#include "cli/reproduce/run.h"
#include "plan/adapipe.h"
#include "plan/memory.h"
#include "plan/offload/offload.h"
#include "plan/simulation/machine_network.h"
#include "plan/slices.h"
#include "policies/plan_create.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct trial {
    const struct sp_run *run;
    const struct sp_machine *machine;
    struct sp_plan plan;
    struct sp_shape shape;
    struct sp_op_terms terms;
};

const struct sp_machine *sp_machine_named(const char *name)
{
    static struct sp_machine kept;

    if (strcmp(kept.name, name) && sp_machine_load(name, &kept))
        return NULL;
    return &kept;
}

static void scale_rates(struct sp_curve *curve, double by)
{
    for (int i = 0; i < curve->n; i++)
        curve->at[i].rate *= by;
}

const struct sp_machine *sp_run_machine(const struct sp_run *run)
{
    static struct sp_machine machine;
    const struct sp_machine *named = sp_machine_named(run->machine);

    if (!named || !(run->unfused > 0 || run->attention > 0))
        return named;
    machine = *named;
    for (int t = 0; t < SP_ELEMENTS; t++) {
        if (run->unfused > 0)
            scale_rates(&machine.rates.memory[t], 1 / run->unfused);
        for (int p = 0; run->attention > 0 && p < SP_ATTENTION_PASSES; p++)
            scale_rates(&machine.rates.attention[t][p], run->attention);
    }
    return &machine;
}

struct sp_shape sp_bf16_shape(const struct sp_model *model, int batch, int seq, int micro_batches)
{
    struct sp_shape sh;

    sp_shape_init(&sh, model, batch, seq, micro_batches);
    sh.dtype = SP_BF16;
    return sh;
}

double sp_run_rate(const struct sp_run *run, const struct sp_run_result *result)
{
    return (double)run->micro_batches * run->batch * run->seq /
           (result->step_s * run->stages * run->devices);
}

/* AdaPipe divides the layers among the stages and chooses what each stage recomputes. */
static int plan_adapipe(struct trial *t)
{
    const int layers = t->shape.model.layers, stages = t->run->stages;
    struct sp_adapipe in = {
        .stages = stages, .layers = layers, .micro_batches = t->run->micro_batches};
    int64_t limit = t->machine->memory_bytes * t->run->devices;
    int *counts = calloc((size_t)stages, sizeof *counts);
    int err;

    t->plan.recompute = calloc((size_t)layers, 1);
    sp_layer_costs_estimate(t->machine, &t->shape, &in.costs);
    err = counts && t->plan.recompute ? 0 : -ENOMEM;
    err = err ? err : sp_adapipe_memory_of(&t->shape, stages, limit, &in.memory);
    err = err ? err : sp_adapipe_plan(&in, &t->plan, &t->shape, counts, t->plan.recompute, NULL);
    err = err ? err : sp_plan_partition(&t->plan, counts);
    free(counts);
    return err;
}

/* ---- time */

/*
 * Messages that block, as Megatron-LM's do between forwards and backwards: both sides wait while a
 * message travels, so it prolongs the op that sends it and the op that reads it.
 */
struct blocking {
    struct sp_network network; /* of the machine */
    double waits;
};

static double wait_of(const struct blocking *b, const struct sp_step_message *m)
{
    return b->waits * b->network.route(b->network.arg, m).busy;
}

static struct sp_route blocking_route(const void *arg, const struct sp_step_message *m)
{
    const struct blocking *b = arg;

    if (!sp_step_message_is_sent(m))
        return b->network.route(b->network.arg, m);
    /* the reader's own time already includes the message, counted from when the writer starts to
     * send it */
    return (struct sp_route){.out = -1, .in = -1, .delay = -wait_of(b, m)};
}

static void prolong_ops(const struct blocking *b, const struct sp_plan *plan,
                        const struct sp_step_messages *messages, double *by_op)
{
    for (int i = 0; i < messages->n; i++) {
        const struct sp_step_message *m = &messages->message[i];
        double busy = wait_of(b, m);

        if (!sp_step_message_is_sent(m) || m->writer < 0 || m->reader < 0)
            continue;
        by_op[plan->family->id(&plan->layout, m->writer_stage,
                               &plan->programs[m->writer_stage].ops[m->writer])] += busy;
        by_op[plan->family->id(&plan->layout, m->to, &plan->programs[m->to].ops[m->reader])] +=
            busy;
    }
}

static int simulate_step(const struct trial *t, struct sp_run_result *result)
{
    const struct sp_plan *plan = &t->plan;
    const struct sp_machine_network links = {.machine = t->machine,
                                             .stages = t->run->stages,
                                             .devices = t->run->devices,
                                             .tier = sp_offload_tier(t->machine, t->run->devices)};
    struct blocking block = {.network = sp_network_of_machine(&links),
                             .waits = t->run->waits > 0 ? t->run->waits : 1};
    struct sp_network network = block.network;
    struct sp_step_messages messages = {0};
    struct sp_message_times when = {0};
    struct sp_times times;
    double *by_op = sp_op_times(plan, &t->shape, &t->terms);
    struct sp_costs costs = {.by_op = by_op};
    int err = by_op ? sp_step_messages_create(plan, &t->shape, &messages) : -ENOMEM;

    if (!err && t->run->ring_as_published)
        sp_ring_as_published(plan, &messages);
    if (!err && t->run->blocking) {
        prolong_ops(&block, plan, &messages, by_op);
        network.route = blocking_route;
        network.arg = &block;
    }
    err = err ? err
              : sp_simulate(
                    &(struct sp_simulated_step){
                        .plan = plan, .costs = &costs, .messages = &messages, .network = &network},
                    &times, &when);
    if (!err) {
        double ms = times.makespan;

        for (int i = 0; i < messages.n; i++)
            ms = fmax(ms, when.arrived[i]);
        for (int s = 0; s < t->run->stages; s++)
            result->stall_s = fmax(result->stall_s, 1e-3 * when.stalled[s]);
        result->step_s = 1e-3 * (ms + sp_update_times(plan, &t->shape, &t->terms) +
                                 sp_share_times(plan, &t->shape, &t->terms));
        result->bubble = times.bubble_ratio;
        sp_times_destroy(&times);
    }
    sp_message_times_destroy(&when);
    sp_step_messages_destroy(&messages);
    free(by_op);
    return err;
}

/* ---- weights that travel around a ring as WeiPipe describes it */

static bool is_weight(const struct sp_step_message *m)
{
    return m->tensor.kind == SP_TENSOR_W || m->tensor.kind == SP_TENSOR_WB;
}

/* True if an op read the tensor on its previous hop too. */
static bool was_read(const struct sp_step_messages *all, const struct sp_step_message *m)
{
    return m->before >= 0 && all->message[m->before].reader >= 0;
}

/* The last weight that the stage gets for the first time and reads before it reads `m`; -1:
 * none. */
static int wanted_before(const struct sp_step_messages *all, const struct sp_step_message *m)
{
    int last = -1;

    for (int i = 0; i < all->n; i++) {
        const struct sp_step_message *e = &all->message[i];

        if (e->to == m->to && is_weight(e) && !was_read(all, e) && e->writer < 0 &&
            e->reader >= 0 && e->reader < m->reader &&
            (last < 0 || e->reader > all->message[last].reader))
            last = i;
    }
    return last;
}

/* Makes the lists by writer and by previous message again. */
static void link_messages(const struct sp_plan *plan, struct sp_step_messages *all)
{
    for (int i = 0; i < all->first_op[plan->layout.stages]; i++)
        all->first_of_writer[i] = -1;
    for (int i = 0; i < all->n; i++)
        all->first_of_before[i] = -1;
    for (int i = all->n - 1; i >= 0; i--) {
        struct sp_step_message *m = &all->message[i];

        if (m->writer >= 0) {
            int *first = &all->first_of_writer[all->first_op[m->writer_stage] + m->writer];

            m->next_of_writer = *first;
            *first = i;
        }
        if (m->before >= 0) {
            m->next_of_before = all->first_of_before[m->before];
            all->first_of_before[m->before] = i;
        }
    }
}

void sp_ring_as_published(const struct sp_plan *plan, struct sp_step_messages *all)
{
    int *before = all->first_of_before; /* link_messages makes it again at the end */

    for (int i = 0; i < all->n; i++) {
        const struct sp_step_message *m = &all->message[i];
        bool first = is_weight(m) && m->reader >= 0 && m->writer < 0 && !was_read(all, m);

        before[i] = !first                           ? m->before
                    : m->tensor.kind == SP_TENSOR_WB ? wanted_before(all, m)
                                                     : -1;
    }
    for (int i = all->n - 1; i >= 0; i--) { /* `before` of earlier messages is not changed yet */
        struct sp_step_message *m = &all->message[i];

        if (m->reader < 0 ||
            (m->tensor.kind == SP_TENSOR_D && m->writer < 0)) /* only passes through; is 0 */
            m->bytes = 0;
        if (is_weight(m) && m->writer < 0 && m->reader >= 0 && was_read(all, m)) {
            m->writer = all->message[m->before].reader;
            m->writer_stage = m->from;
            m->beside = true;
        }
    }
    for (int i = 0; i < all->n; i++)
        all->message[i].before = before[i];
    link_messages(plan, all);
}

/* ---- memory */

static void note_memory(const struct trial *t, int stage, const struct sp_memory *m,
                        struct sp_run_result *result)
{
    double logits = stage == t->run->stages - 1
                        ? t->run->logit_bytes * t->shape.rows * t->shape.model.vocab
                        : 0;
    double bytes = ((double)sp_memory_sum(m) + logits) / t->run->devices;

    if (t->run->stage_bytes)
        t->run->stage_bytes[stage] = bytes;
    result->memory_bytes = fmax(result->memory_bytes, bytes);
}

/* Plans the offloading and adds it to the plan for the simulation. */
static int plan_offload(struct trial *t, struct sp_run_result *result)
{
    const double devices = t->run->devices;
    struct sp_offload_request want =
        sp_offload_request(&t->terms, &t->shape, t->run->offload,
                           t->run->hides_all ? 0 : (int64_t)(t->machine->memory_bytes * devices));
    struct sp_offload out = {0};
    struct sp_offload_lack lack;
    int err;

    want.keys = SP_KEYS_STAY; /* as in the paper */
    err = sp_offload_try(&t->plan, &t->shape, &want, &out, &lack);

    if (err == -EINVAL) {
        result->memory_bytes = (double)(sp_memory_sum(&lack.memory) + lack.least) / devices;
        return 0;
    }
    for (int s = 0; !err && s < out.stages; s++) {
        note_memory(t, s, &out.memory[s], result);
        result->kept_bytes = fmax(result->kept_bytes, (double)out.evictions[s].peak_kept / devices);
        result->host_bytes = fmax(result->host_bytes, (double)out.evictions[s].most_evicted *
                                                          t->machine->devices_per_node / devices);
    }
    err = err ? err : sp_offload_apply(&out, &t->shape, &t->plan);
    sp_offload_destroy(&out);
    return err;
}

static int memory_of_stages(struct trial *t, struct sp_run_result *result)
{
    struct sp_memory *m = calloc((size_t)t->run->stages, sizeof *m);
    int err;

    if (!m)
        return -ENOMEM;
    err = sp_memory_of_plan(&t->plan, &t->shape, t->run->recompute, 1, m);
    for (int s = 0; !err && s < t->run->stages; s++)
        note_memory(t, s, &m[s], result);
    free(m);
    return err;
}

static int find_memory(struct trial *t, struct sp_run_result *result)
{
    int err = 0;

    if (t->run->offload != SP_OFFLOAD_NONE)
        err = plan_offload(t, result);
    else
        err = memory_of_stages(t, result);
    result->fits = result->memory_bytes <= (double)t->machine->memory_bytes &&
                   result->host_bytes <= (double)t->machine->host_bytes;
    return err;
}

/* ---- a run */

int sp_run(const struct sp_run *run, struct sp_run_result *result)
{
    struct sp_layout lay = {.stages = run->stages,
                            .micro_batches = run->micro_batches,
                            .chunks = run->chunks,
                            .slices = run->slices ? run->slices : 1,
                            .layers = run->model.layers,
                            .options = ""};
    struct trial t = {.run = run, .machine = sp_run_machine(run)};
    int err = t.machine ? sp_plan_create(run->schedule, &lay, &t.plan) : -EINVAL;

    if (err)
        return err;
    *result = (struct sp_run_result){0};
    t.shape = sp_bf16_shape(&run->model, run->batch, run->seq, run->micro_batches);
    if (run->pipelines > 1)
        sp_shape_share(&t.shape, run->pipelines, 1);
    t.terms = (struct sp_op_terms){
        .machine = t.machine, .devices = run->devices, .recompute = run->recompute, .every = 1};
    err = lay.slices > 1 ? sp_plan_cut(&t.plan, &t.shape, run->cut, t.machine) : 0;
    t.plan.processes = run->stages;
    err = err || strcmp(t.plan.def->name, "adapipe") ? err : plan_adapipe(&t);
    err = err ? err : find_memory(&t, result);
    err = err || run->memory_only ? err : simulate_step(&t, result);
    sp_plan_destroy(&t.plan);
    return err == -ENOMEM ? sp_error(ENOMEM, "reproduce: no memory for %s on %d stages",
                                     run->schedule, run->stages)
                          : err;
}
