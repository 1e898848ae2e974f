/*
 * Tensors that stages park on each other (policies/lowering/parking.h) beside what they evict: how
 * long they are out of memory, where they are meanwhile, and which stage parks on which.
 *
 * A forward's parked tensors leave when it has ended. They have left when the stage's next op has
 * ended (graphs/offload/parked.c waits for that), and take memory again after the op that asks for
 * them. On the other stage they take memory from that stage's next op on, until one more op has ended
 * after they were sent back.
 */
#include "plan/cost/op_times.h"
#include "plan/offload/builder.h"
#include "plan/offload/pages.h"
#include "plan/simulation/machine_network.h"
#include "policies/lowering/parking_choice.h"
#include "policies/simulation/listsim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots ------------------------------------------------------------------------------------- */

/* The op after op k, and after the one that overlaps with it. */
static int after(const struct sp_program *prog, int k)
{
    return k < prog->n ? k + 1 + prog->ops[k].overlap : prog->n;
}

/* The units of the layers of a forward. */
static struct sp_unit *units_of(const struct sp_plan *plan, int stage,
                                const struct sp_eviction_plan *a, int op)
{
    return &a->units[a->activations_unit[sp_activations_of_op(plan, stage,
                                                              &plan->programs[stage].ops[op])]];
}

static int layers_of(const struct sp_plan *plan, const struct sp_shape *sh, int at)
{
    int first, count;

    sp_part_layers(plan, sh->model.layers, sp_globals(&plan->layout), at, &first, &count);
    return count;
}

/* Sets when parked tensors of some activations are out of memory. */
static void find_slots(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                       struct sp_eviction_plan *a, const struct sp_parked *p)
{
    const struct sp_program *prog = &plan->programs[stage];
    struct sp_unit *u = units_of(plan, stage, a, p->leaves);

    for (int i = 0, n = layers_of(plan, sh, p->at); i < n; i++) {
        u[i].peer_gone = a->op_slots[after(prog, after(prog, p->leaves))];
        u[i].peer_back = a->op_slots[after(prog, p->asked)];
    }
}

/* Bytes of parked activations, in whole pages. */
static int64_t bytes_of(const struct sp_plan *plan, const struct sp_shape *sh,
                        const struct sp_parked *p)
{
    int64_t bytes[SP_STASH_TENSORS], sum = 0;
    int first, count;

    sp_part_layers(plan, sh->model.layers, sp_globals(&plan->layout), p->at, &first, &count);
    for (int i = 0; i < count; i++) {
        sp_parked_layer(plan->parking, p, sh,
                        sp_layer_recompute(plan, plan->parking->recompute, first + i), i, bytes);
        for (int k = 0; k < SP_STASH_TENSORS; k++)
            sum += sp_pages(bytes[k]);
    }
    return sum;
}

/* Counts what another stage parks on this one. */
static void count_guest(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                        struct sp_eviction_plan *a, const struct sp_parked *p)
{
    int last = a->op_slots[after(&plan->programs[stage], p->goes)];
    int64_t bytes = bytes_of(plan, sh, p);

    for (int s = a->op_slots[p->arrives]; s < last; s++)
        a->also[s] += bytes;
}

void sp_peers_count(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                    struct sp_eviction_plan *a)
{
    const struct sp_parking *parking = plan->parking;

    for (int s = 0; parking && s < parking->stages; s++)
        for (int i = 0; i < parking->stage[s].n; i++) {
            const struct sp_parked *p = &parking->stage[s].unit[i];

            if (p->peer == stage)
                count_guest(plan, sh, stage, a, p);
            if (s != stage)
                continue;
            find_slots(plan, sh, stage, a, p);
            for (int l = 0, n = layers_of(plan, sh, p->at); l < n; l++) {
                struct sp_unit *u = &units_of(plan, stage, a, p->leaves)[l];

                for (int k = 0; k < SP_STASH_TENSORS; k++)
                    if (u->bytes[k] > 0 && (!p->tensors || p->tensors[l] >> k & 1))
                        u->parked |= 1u << k;
            }
        }
}

/* ---- a pair of stages -------------------------------------------------------------------------- */

struct pair {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_offload_request *want;
    int from, to;
    int64_t limit; /* of the activations of `from` */
    int64_t room;  /* on `to` */
};

/* Bytes that the link carries in the time in which one is written to the tier. Outputs of forwards
 * go first. */
static double share_of_link(const struct pair *p, const struct sp_eviction_plan *a)
{
    enum { MOST = 1000 }; /* if there is no tier to speak of */
    const struct sp_machine_network network = {
        .machine = p->want->machine, .stages = p->plan->layout.stages, .devices = p->want->devices};
    double rate = sp_network_rate(&network, p->from, p->to), tier, seconds = 0, share;
    double output = (double)sp_shape_elem(p->sh) * p->sh->rows * p->sh->model.hidden;

    tier = sp_offload_tier(p->want->machine, p->want->devices).write;
    for (int g = 0; g < a->n_groups; g++)
        seconds += a->groups[g].hides_s;
    if (tier <= 0)
        return MOST;
    share = seconds > 0 ? (rate - output * a->n_groups / seconds) / tier : rate / tier;
    return share > MOST ? MOST : share > 0 ? share : 0;
}

/* Tells the groups of a stage which of their units may be parked. */
static void offer(const struct pair *p, struct sp_eviction_plan *a, const struct sp_parked *list,
                  int n)
{
    for (int i = 0, g = 0; i < n; i++) {
        const struct sp_unit *first = units_of(p->plan, p->from, a, list[i].leaves);

        find_slots(p->plan, p->sh, p->from, a, &list[i]);
        while (&a->units[a->groups[g].first] != first)
            g++;
        a->groups[g].arrives = list[i].arrives;
        a->groups[g].goes = list[i].goes;
    }
    a->peer = (struct sp_eviction_peer){.share = share_of_link(p, a), .room = p->room};
}

/* Takes over what was chosen to be parked. */
static int take(const struct pair *p, const struct sp_eviction_plan *a,
                const struct sp_parked *list, int n, struct sp_parking_stage *stage)
{
    size_t layers = (size_t)p->sh->model.layers, at = 0;

    stage->unit = calloc((size_t)n + 1, sizeof *stage->unit);
    stage->tensors = calloc((size_t)n + 1, layers);
    if (!stage->unit || !stage->tensors)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        const struct sp_unit *u = units_of(p->plan, p->from, a, list[i].leaves);
        int count = layers_of(p->plan, p->sh, list[i].at);
        bool any = false;

        for (int l = 0; l < count; l++) {
            stage->tensors[at + (size_t)l] = (unsigned char)u[l].parked;
            any |= u[l].parked != 0;
        }
        if (!any)
            continue;
        stage->unit[stage->n] = list[i];
        stage->unit[stage->n++].tensors = stage->tensors + at;
        at += (size_t)count;
    }
    return 0;
}

static int choose_pair(const struct pair *p, struct sp_parking_stage *stage)
{
    int stages = p->plan->layout.slices;
    int room = p->plan->programs[p->from].n, n;
    struct sp_parked *list = calloc((size_t)room + 1, sizeof *list);
    struct sp_eviction_plan a = {0};
    int64_t least;
    int err = list ? sp_offload_units(p->plan, p->sh, p->want, stages, p->from, &a) : -ENOMEM;

    n = err ? err : sp_parking_list(p->plan, p->from, p->to, list);
    err = n < 0 ? n : 0;
    if (!err) {
        offer(p, &a, list, n);
        sp_eviction_plan_choose(&a, p->want->mode, p->limit, p->want->rates, &least);
        err = take(p, &a, list, n, stage);
    }
    sp_eviction_plan_free(&a);
    free(list);
    return err;
}

/* ---- all stages -------------------------------------------------------------------------------- */

struct need {
    int stage;
    int64_t bytes; /* if all stays */
};

static int compare_needs(const void *a, const void *b)
{
    const struct need *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : x->stage - y->stage;
}

static bool is_apart(const struct sp_plan *plan, int a, int b)
{
    int64_t stages = plan->layout.stages,
            processes = plan->processes > 0 ? plan->processes : stages;

    return a * processes / stages != b * processes / stages;
}

static int find_need(const struct sp_plan *plan, const struct sp_shape *sh,
                     const struct sp_offload_request *want, const struct sp_memory *memory,
                     struct need *need)
{
    struct sp_eviction_plan a = {0};
    int64_t least;
    int err = sp_offload_units(plan, sh, want, plan->layout.slices, need->stage, &a);

    if (!err)
        sp_eviction_plan_choose(&a, SP_OFFLOAD_NONE, 0, want->rates, &least);
    need->bytes = memory->states + memory->workspace + a.peak;
    sp_eviction_plan_free(&a);
    return err;
}

/* Pairs the stages that need more than the limit with those that need least. */
static int choose_by_limit(const struct sp_plan *plan, const struct sp_shape *sh,
                           const struct sp_offload_request *want, const struct sp_memory *memory,
                           struct sp_parking *parking)
{
    int stages = plan->layout.stages, err = 0;
    struct need *need = calloc((size_t)stages, sizeof *need);

    for (int s = 0; need && !err && s < stages; s++) {
        need[s].stage = s;
        err = find_need(plan, sh, want, &memory[s], &need[s]);
    }
    if (!need || err) {
        free(need);
        return -ENOMEM;
    }
    qsort(need, (size_t)stages, sizeof *need, compare_needs);
    for (int i = 0, k = stages - 1; !err && i < k && need[i].bytes > want->limit; i++, k--) {
        int from = need[i].stage, to = need[k].stage;
        struct pair pair = {plan,
                            sh,
                            want,
                            from,
                            to,
                            sp_offload_room(want, &memory[from]),
                            want->limit - need[k].bytes};

        if (pair.room > 0 && is_apart(plan, from, to))
            err = choose_pair(&pair, &parking->stage[from]);
    }
    free(need);
    return err;
}

/* Leaves out what stages would park within a process. */
static int drop_inside(const struct sp_plan *plan, struct sp_parking *parking)
{
    int left = 0;

    for (int s = 0; s < parking->stages; s++) {
        struct sp_parking_stage *stage = &parking->stage[s];

        if (stage->n && !is_apart(plan, s, stage->unit[0].peer))
            stage->n = 0;
        left += stage->n;
    }
    memset(parking->of, 0,
           (size_t)(plan->layout.micro_batches * parking->globals) * sizeof(*parking->of));
    sp_parking_close(parking);
    return left;
}

int sp_peers_choose(const struct sp_plan *plan, const struct sp_shape *sh,
                    const struct sp_offload_request *want, const struct sp_memory *memory,
                    struct sp_parking **parking)
{
    struct sp_plan ordered = *plan;
    int n, err = 0;

    ordered.parking = NULL;
    ordered.order = plan->order ? plan->order : sp_plan_order(plan, &n);
    if (!ordered.order)
        return -ENOMEM;
    if (want->mode == SP_OFFLOAD_ADAPTIVE && want->limit) {
        ordered.parking = sp_parking_new(plan, want->recompute, want->every);
        err = ordered.parking ? choose_by_limit(&ordered, sh, want, memory, ordered.parking)
                              : -ENOMEM;
    } else {
        err = sp_parking_create(&ordered, sh, want->recompute, want->every);
    }
    if (ordered.order != plan->order)
        free(ordered.order);
    if (ordered.parking && (err || !drop_inside(plan, ordered.parking))) {
        sp_parking_destroy(ordered.parking);
        ordered.parking = NULL;
    }
    *parking = ordered.parking;
    return err;
}
