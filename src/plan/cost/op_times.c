#include "plan/cost/op_times.h"
#include "plan/cost/shared_attention.h"
#include "plan/cost/part_times.h"
#include "plan/memory.h"
#include "policies/families/activations.h"
#include "policies/families/work.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/pipelines.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slices have few lengths, but each starts at another token. */
enum { SLICES = 1 << 9 };

struct slice_times {
    int first, tokens; /* tokens 0: not known yet */
    struct sp_part_times t;
    struct sp_head_times head; /* if all stages share the vocabulary */
};

struct pricing {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    struct sp_op_terms terms;  /* of the current stage */
    struct slice_times *slice; /* [SLICES] by place and length */
};

static const struct slice_times *slice_of(const struct pricing *p, const struct sp_op_work *w)
{
    struct slice_times *s =
        &p->slice[((unsigned)w->first_token * 31u + (unsigned)w->tokens) % SLICES];

    if (s->tokens != w->tokens || s->first != w->first_token) {
        struct sp_shape part;

        sp_shape_slice(p->sh, w->first_token, w->tokens, &part);
        sp_part_times(p->terms.machine, p->terms.devices, &part, &s->t);
        if (p->plan->layout.vocabulary_parallel)
            sp_head_times(p->terms.machine, p->terms.devices, &part, p->plan->layout.stages,
                          &s->head);
        s->first = w->first_token;
        s->tokens = w->tokens;
    }
    return s;
}

static const struct sp_part_times *times_of(const struct pricing *p, const struct sp_op_work *w)
{
    return &slice_of(p, w)->t;
}

static double forward(const struct sp_part_times *t, const struct sp_op_work *w)
{
    double layer = 0, moved = w->qkv_with_attention ? t->qkv : 0;
    double out = w->out_with_attention ? t->out : 0;

    if (w->pre)
        layer += t->pre - moved;
    if (w->attention)
        layer += t->attention + moved + out;
    if (w->post)
        layer += t->post - out;
    return w->layers * layer + (w->embed ? t->embed : 0);
}

static enum sp_recompute mode_of(const struct pricing *p, const struct sp_op_work *w, int layer)
{
    enum sp_recompute mode = sp_layer_recompute(p->plan, p->terms.recompute, layer);

    return w->keeps_attention ? sp_recompute_keeping_attention(mode) : mode;
}

/* Recompute time of a block, including its output if another part reads it. */
static double block_again(const struct pricing *p, const struct sp_part_times *t,
                          const struct sp_op_work *w, enum sp_recompute mode)
{
    bool whole = !sp_stash_keeps(mode, SP_STASH_PRE);
    bool output = whole && (!w->out_with_attention || w->head || w->head_norm);
    double sum =
        (output ? t->post : t->post_again[mode]) - (w->out_with_attention && whole ? t->out : 0);

    return sum + (output && sp_mlp_comes_in_chunks(p->sh, mode) ? t->up : 0);
}

/* Recompute time in families whose ops are parts of layers. The next norm reads a block's output,
 * so it is recomputed, unless that norm belongs to attention. Attention keeps q, k and v, or
 * recomputes them itself. */
static double part_again(const struct pricing *p, const struct sp_part_times *t,
                         const struct sp_op_work *w, enum sp_recompute mode)
{
    bool whole = !sp_stash_keeps(mode, SP_STASH_PRE);
    double sum = w->post ? block_again(p, t, w, mode) : 0;

    if (w->pre) /* q, k and v were sent to another stage, which keeps them */
        sum += t->pre_again[whole && !w->attention ? SP_RECOMPUTE_SELECTIVE : mode];
    if (w->attention && w->qkv_with_attention && whole)
        sum += t->qkv;
    return sum + (w->attention ? t->attention_again[mode] : 0);
}

/* True if a layer that is computed again must give its output: the next layer of a group that keeps one input reads it. */
static bool is_output_wanted(const struct pricing *p, const struct sp_op_work *w, int layer)
{
    int i = layer - w->first;

    return (i + 1) % p->terms.every != 0 && i + 1 < w->layers;
}

/* Recompute time in the backward of a layer. */
static double again(const struct pricing *p, const struct sp_part_times *t,
                    const struct sp_op_work *w, int layer)
{
    enum sp_recompute mode = mode_of(p, w, layer);
    double sum = 0;

    if (p->plan->family->facts.parts)
        return part_again(p, t, w, mode);
    if (w->pre)
        sum += t->pre_again[mode];
    if (w->attention)
        sum += t->attention_again[mode];
    if (w->post)
        sum += t->post_again[mode];
    if (w->pre && w->post && mode == SP_RECOMPUTE_FULL && is_output_wanted(p, w, layer)) {
        bool in_chunks = w->weight && sp_mlp_comes_in_chunks(p->sh, mode);

        sum += t->post - t->post_again[mode] + (in_chunks ? t->up : 0);
    }
    return sum;
}

static double backward(const struct pricing *p, const struct sp_part_times *t,
                       const struct sp_op_work *w)
{
    double layer = 0, input = w->qkv_with_attention ? t->qkv_input : 0, sum = 0;
    double out = w->out_with_attention ? t->out : 0;

    if (w->input && w->pre)
        layer += t->pre_input - input;
    if (w->input && w->attention)
        layer += t->attention_input + input + out;
    if (w->input && w->post)
        layer += t->post_input - out;
    if (w->weight && (w->qkv_with_attention ? w->attention : w->pre))
        layer += t->qkv_weight;
    if (w->weight && w->post)
        layer += t->post_weight - out;
    if (w->weight && w->attention)
        layer += out;
    for (int i = 0; w->input && i < w->layers; i++)
        sum += again(p, t, w, w->first + i);
    return sum + w->layers * layer + (w->embed && w->weight ? t->embed_weight : 0);
}

/* True if a forward leaves its work to the head: its backward recomputes all of it anyway. */
static bool waits_for_head(const struct pricing *p, const struct sp_op_work *w)
{
    return w->forward && w->to_head && !sp_stash_keeps(mode_of(p, w, w->first), SP_STASH_PRE);
}

/* Time of a head whose vocabulary all stages share: of a stage's own rows, or of the norm before
 * them and its backward on the last stage. */
static double head_share(const struct sp_head_times *t, const struct sp_op_work *w)
{
    if (w->head_share)
        return w->forward ? t->forward : t->backward;
    return w->forward ? t->norm : w->input ? t->norm_input : 0;
}

/* The machine of a stage's devices, those of all its members. */
static const struct sp_machine *machine_of(const struct sp_shape *sh,
                                           const struct sp_op_terms *terms, int stage)
{
    int64_t devices = (int64_t)terms->devices * sh->pipelines * sh->tensor;

    return sp_machine_of_devices(terms->machine, stage * devices, devices);
}

struct sp_tier_rates sp_offload_tier(const struct sp_machine *machine, int devices)
{
    const struct sp_copy_rates *copy = &machine->copy;
    double node = machine->devices_per_node;

    if (sp_machine_is_cpu(machine))
        return (struct sp_tier_rates){machine->disk.write * devices / node,
                                      machine->disk.read * devices / node};
    return (struct sp_tier_rates){copy->both * devices / copy->shared_by,
                                  copy->both * devices / copy->shared_by};
}

/* Bytes a second of main memory that a stage's part of a node's cores have while all devices of the
 * run update. If nobody measured them, at least what all devices of the node copy at once. */
static double host_rate(const struct sp_plan *plan, const struct sp_shape *sh,
                        const struct sp_op_terms *terms, const struct sp_machine *machine)
{
    const struct sp_copy_rates *copy = &machine->copy;
    double devices = (double)plan->layout.stages * terms->devices * sh->pipelines * sh->tensor;
    double rate = machine->host_rate > 0
                      ? machine->host_rate
                      : 2 * copy->both * machine->devices_per_node / copy->shared_by;

    return rate * terms->devices / fmin(devices, machine->devices_per_node);
}

/*
 * Both ways follow blocks: while one is updated, the next one comes and the one before leaves, so
 * the slowest of these counts. On cores, AdamW reads gradient, weight and two moments, writes three
 * of them and the rounded weight; copies read and write the same memory.
 */
struct sp_update_ways sp_update_ways(const struct sp_plan *plan, const struct sp_shape *sh,
                                     const struct sp_op_terms *terms, int stage)
{
    const double f32 = sizeof(float), elem = (double)sp_shape_elem(sh), d = terms->devices;
    const struct sp_machine *machine = machine_of(sh, terms, stage);
    double elements = (double)sp_memory_updated(plan, sh, stage) / d;
    double bus = sp_offload_tier(machine, terms->devices).read / d;
    double adamw = 7 * f32 + (sh->dtype == SP_F32 ? 0 : elem), copied = f32 + elem;
    struct sp_update_ways w = {
        .state = elements * (sh->dtype == SP_F32 ? 2 : 3) * f32 / bus,
        .gradients = elements * f32 / bus,
        .weights = elements * elem / bus,
        .rate = host_rate(plan, sh, terms, machine) / d,
    };
    /* the GPU reads gradients for their norm, and clears them */
    double passes = sp_memory_s(machine, SP_F32, 2 * f32 * elements) + 2 * machine->rates.launch_s;
    double left;

    w.adamw = elements * (adamw + copied) / w.rate;
    w.on_gpu = fmax(sp_update_time(machine, elements), w.state);
    w.on_cores = passes + fmax(fmax(w.gradients, w.weights), w.adamw);
    left = w.on_gpu - passes;
    w.even = left > fmax(w.gradients, w.weights) ? elements * (adamw + copied) / left : INFINITY;
    return w;
}

/* True if main memory of a node has room for the state, and for copies of gradients and weights. */
static bool fits_host(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms, int stage)
{
    const struct sp_machine *machine = machine_of(sh, terms, stage);
    struct sp_plan cores = *plan;
    double devices = (double)plan->layout.stages * terms->devices * sh->pipelines * sh->tensor;

    cores.updates_on_cores = true;
    return (double)sp_memory_evicted_states(&cores, sh, stage) / terms->devices *
               fmin(devices, machine->devices_per_node) <=
           (double)machine->host_bytes;
}

bool sp_update_is_on_cores(const struct sp_plan *plan, const struct sp_shape *sh,
                           const struct sp_op_terms *terms, enum sp_update_device wanted)
{
    double on_gpu = 0, on_cores = 0;

    if (!plan->states_evicted || wanted == SP_UPDATE_GPU || sp_machine_is_cpu(terms->machine))
        return false;
    for (int s = 0; wanted == SP_UPDATE_AUTO && s < plan->layout.stages; s++) {
        struct sp_update_ways w = sp_update_ways(plan, sh, terms, s);

        if (!fits_host(plan, sh, terms, s))
            return false;
        on_gpu = fmax(on_gpu, w.on_gpu);
        on_cores = fmax(on_cores, w.on_cores);
    }
    return wanted == SP_UPDATE_CPU || on_cores < on_gpu;
}

/* Seconds of the optimizer on a stage, whose state comes and leaves meanwhile if it is evicted. */
static double update_time(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms, int stage)
{
    const struct sp_machine *machine = machine_of(sh, terms, stage);
    struct sp_tier_rates tier = sp_offload_tier(machine, terms->devices);
    double elements = (double)sp_memory_updated(plan, sh, stage);
    double moved = (double)sp_memory_evicted_states(plan, sh, stage);

    if (moved > 0 && !sp_machine_is_cpu(machine)) {
        struct sp_update_ways w = sp_update_ways(plan, sh, terms, stage);

        return plan->updates_on_cores ? w.on_cores : w.on_gpu;
    }
    return fmax(sp_update_time(machine, elements / terms->devices),
                moved > 0 ? moved / tier.read + moved / tier.write : 0);
}

/* The link to the same stage of the other pipelines, which are neighbours. */
static const struct sp_link *link_of_pipelines(const struct sp_shape *sh,
                                               const struct sp_op_terms *terms)
{
    const struct sp_machine *m = terms->machine;
    bool inside = sh->pipelines * sh->tensor * terms->devices <= m->devices_per_node;

    return inside ? &m->node : &m->network;
}

/* Seconds of the shards of layers on their way while an op runs: they come a layer ahead, and their
 * gradients leave behind. */
static double shards_time(const struct pricing *p, int stage, const struct sp_op *op)
{
    const struct sp_lowering l = {
        .plan = p->plan, .shape = p->sh, .recompute = p->terms.recompute, .every = p->terms.every};
    int64_t bytes = 0;

    if (p->sh->zero < 2)
        return 0;
    bytes = sp_exchange_bytes(&l, SP_TRAFFIC_GATHER, stage, op) +
            sp_exchange_bytes(&l, SP_TRAFFIC_SCATTER, stage, op);
    return sp_link_s(link_of_pipelines(p->sh, &p->terms), (double)bytes / p->terms.devices);
}

static double price(const struct pricing *p, int stage, const struct sp_op *op)
{
    struct sp_op_work work[SP_MOST_WORK];
    int n = sp_op_work(p->plan, p->sh, stage, op, work);
    double sum = 0;

    for (int i = 0; i < n; i++) {
        const struct sp_part_times *t = times_of(p, &work[i]);

        if (waits_for_head(p, &work[i]))
            sum += p->terms.machine->rates.launch_s;
        else
            sum += work[i].forward ? forward(t, &work[i]) : backward(p, t, &work[i]);
        sum += work[i].head ? t->head : 0;
        if (work[i].head_share || work[i].head_norm)
            sum += head_share(&slice_of(p, &work[i])->head, &work[i]);
    }
    if (sp_op_updates(&p->plan->layout, op))
        sum += update_time(p->plan, p->sh, &p->terms, stage);
    if (p->plan->family->facts.shares_attention)
        sum += sp_assist_time(p->plan, p->sh, &p->terms, stage, op);
    if (n > 0 && work[0].keeps_attention)
        sum += sp_shared_slice_time(p->plan, p->sh, &p->terms, op);
    return 1e3 * fmax(sum, shards_time(p, stage, op));
}

/* A backward begins by recomputing its last layer, or the last group of layers that share one kept
 * input; or a block. */
static double price_again(const struct pricing *p, int stage, const struct sp_op *op)
{
    struct sp_op_work work[SP_MOST_WORK];
    int n = p->plan->family->again ? sp_op_work(p->plan, p->sh, stage, op, work) : 0;
    double sum = 0;

    for (int i = 0; i < n; i++) {
        int first = work[i].first, last = first + work[i].layers - 1;
        enum sp_recompute mode;

        if (!work[i].input || work[i].layers == 0)
            continue;
        mode = mode_of(p, &work[i], last);
        if (sp_stash_keeps(mode, SP_STASH_PRE))
            continue;
        for (int l = last; l >= first + (last - first) / p->terms.every * p->terms.every; l--)
            sum += again(p, times_of(p, &work[i]), &work[i], l);
    }
    return 1e3 * sum;
}

/* Moves on to a stage. Prices of slices stay valid as long as the devices are the same. */
static void go_to(struct pricing *p, const struct sp_op_terms *terms, int stage)
{
    const struct sp_machine *machine = machine_of(p->sh, terms, stage);

    if (machine != p->terms.machine)
        memset(p->slice, 0, SLICES * sizeof *p->slice);
    p->terms.machine = machine;
}

typedef double price_fn(const struct pricing *p, int stage, const struct sp_op *op);

/* Prices every op, indexed by the id that the family gives it. */
static double *price_all(const struct sp_plan *plan, const struct sp_shape *sh,
                         const struct sp_op_terms *terms, price_fn *price_of)
{
    const struct sp_layout *lay = &plan->layout;
    const struct sp_op_classes *classes = &plan->classes;
    double *ms = calloc((size_t)plan->family->ids(lay), sizeof *ms);
    double *price = malloc(((size_t)classes->first[lay->stages] + 1) * sizeof *price);
    struct pricing p = {
        .plan = plan, .sh = sh, .terms = *terms, .slice = calloc(SLICES, sizeof *p.slice)};
    bool made = ms && price && p.slice;

    for (int s = 0; made && s < lay->stages; s++) {
        const struct sp_op *ops = plan->programs[s].ops;
        const int *of = sp_op_classes_of(classes, s);

        go_to(&p, terms, s);
        for (int c = classes->first[s]; c < classes->first[s + 1]; c++)
            price[c] = price_of(&p, s, &ops[classes->example[c]]);
        for (int k = 0; k < plan->programs[s].n; k++)
            ms[plan->family->id(lay, s, &ops[k])] = price[of[k]];
    }
    free(price);
    free(p.slice);
    if (!made)
        free(ms);
    return made ? ms : NULL;
}

double *sp_op_times_again(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms)
{
    return price_all(plan, sh, terms, price_again);
}

void sp_machine_cut_links(const struct sp_machine *from, struct sp_machine *m)
{
    *m = *from;
    m->node = m->network = (struct sp_link){.bandwidth = INFINITY, .shared_by = 1};
}

double *sp_op_times_alone(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms)
{
    int kinds = terms->machine->kinds;
    struct sp_machine *machine =
        calloc((size_t)kinds + 1, sizeof *machine); /* the machine, then each kind */
    struct sp_op_terms alone = *terms;
    double *ms;

    if (!machine)
        return NULL;
    sp_machine_cut_links(terms->machine, machine);
    for (int k = 0; k < kinds; k++) {
        sp_machine_cut_links(terms->machine->kind[k].machine, &machine[1 + k]);
        machine->kind[k].machine = &machine[1 + k];
    }
    alone.machine = machine;
    ms = price_all(plan, sh, &alone, price);
    free(machine);
    return ms;
}

/* The exchanges of an op run while the one that overlaps with it computes (graphs/turns.h): takes
 * what that hides off the second one's time. */
static void hide(const double *alone, int first, int second, double *ms)
{
    double exchange = ms[first] - alone[first], other = ms[second] - alone[second];
    double hidden = fmin(exchange, alone[second]) + fmin(other, alone[first]);
    double computing = alone[first] + alone[second];

    ms[second] -= fmin(hidden, fmin(computing, exchange + other));
}

double *sp_op_times(const struct sp_plan *plan, const struct sp_shape *sh,
                    const struct sp_op_terms *terms)
{
    double *ms = price_all(plan, sh, terms, price), *alone, *done;

    if (!ms || !plan->paired || sh->tensor * sh->context == 1)
        return ms;
    alone = sp_op_times_alone(plan, sh, terms);
    for (int s = 0; alone && s < plan->layout.stages; s++) {
        const struct sp_program *prog = &plan->programs[s];

        for (int k = 0; k + 1 < prog->n; k++)
            if (prog->ops[k].overlap)
                hide(alone, plan->family->id(&plan->layout, s, &prog->ops[k]),
                     plan->family->id(&plan->layout, s, &prog->ops[k + 1]), ms);
    }
    if (!alone)
        free(ms);
    done = alone ? ms : NULL;
    free(alone);
    return done;
}

double sp_update_times(const struct sp_plan *plan, const struct sp_shape *sh,
                       const struct sp_op_terms *terms)
{
    double most = 0;

    for (int s = 0; !plan->family->facts.stashes && s < plan->layout.stages; s++)
        most = fmax(most, update_time(plan, sh, terms, s));
    return 1e3 * most;
}

double sp_share_time(const struct sp_shape *sh, const struct sp_op_terms *terms, double gradients,
                     double weights)
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int rounds = sp_pipelines_exchanges(0, sh->pipelines, e), others = sh->pipelines - 1;
    const struct sp_link *net = link_of_pipelines(sh, terms);
    double n = sh->pipelines;

    if (!rounds)
        return 0;
    return 1e3 * (sh->zero ? others * (sp_link_s(net, sizeof(float) * gradients / n) +
                                       sp_link_s(net, (double)sp_shape_elem(sh) * weights / n))
                           : rounds * sp_link_s(net, sizeof(float) * gradients));
}

double sp_share_times(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms)
{
    double most = 0;

    for (int s = 0; sh->pipelines > 1 && s < plan->layout.stages; s++) {
        struct sp_shared_parameters p = sp_memory_shared(plan, sh, s);

        most = fmax(most, sp_share_time(sh, terms, (double)p.gradients / terms->devices,
                                        (double)p.weights / terms->devices));
    }
    return most;
}
