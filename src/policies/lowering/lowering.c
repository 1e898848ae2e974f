#include "policies/lowering/lowering.h"
#include "policies/simulation/listsim.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages on their way ---------------------------------------------------------------- */

struct message {
    struct sp_tensor_id tensor;
    int from, to;
    int64_t number;
    struct message *next; /* of the same list, sent later */
};

enum { LISTS = 1 << 12 };

struct sp_messages {
    struct message *list[LISTS]; /* by a hash of tensor and stages, each oldest first */
    int64_t sent;                /* pieces, in this step */
    bool lost;                   /* there was no memory for one */
};

static unsigned list_of(const struct sp_tensor_id *t, int from, int to)
{
    return (sp_tensor_hash(t, LISTS) + 31 * (unsigned)from + (unsigned)to) % LISTS;
}

static bool is_same(const struct message *m, const struct sp_tensor_id *t, int from, int to)
{
    return m->from == from && m->to == to && sp_tensor_is_same(&m->tensor, t);
}

static void post(struct sp_messages *messages, struct message sent)
{
    struct message **at = &messages->list[list_of(&sent.tensor, sent.from, sent.to)];
    struct message *m = malloc(sizeof *m);

    if (!m) {
        messages->lost = true;
        return;
    }
    while (*at)
        at = &(*at)->next;
    *m = sent;
    *at = m;
}

/* The number of a message that was sent, -1: none was. */
static int64_t take(struct sp_messages *messages, const struct sp_tensor_id *t, int from, int to)
{
    struct message **at = &messages->list[list_of(t, from, to)], *m;
    int64_t number;

    while (*at && !is_same(*at, t, from, to))
        at = &(*at)->next;
    m = *at;
    if (!m)
        return -1;
    *at = m->next;
    number = m->number;
    free(m);
    return number;
}

static void clear(struct sp_messages *messages)
{
    for (int i = 0; i < LISTS; i++)
        while (messages->list[i]) {
            struct message *m = messages->list[i];

            messages->list[i] = m->next;
            free(m);
        }
    messages->sent = 0;
}

/* The next entries of a stage's evictions; a step comes to its ops in order. */
struct sp_evicting {
    int leaving, returning, streams;
};

/* ---- the walk ------------------------------------------------------------------------------ */

int sp_lowering_create(const struct sp_plan *plan, const struct sp_shape *shape, int processes,
                       struct sp_lowering *l)
{
    const struct sp_layout *lay = &plan->layout;

    *l = (struct sp_lowering){.plan = plan, .shape = shape, .processes = processes, .every = 1};
    l->n = sp_plan_ops(plan);
    l->order = plan->order ? plan->order : (l->made = sp_plan_order(plan, &l->n));
    l->position = calloc((size_t)plan->family->ids(lay), sizeof *l->position);
    l->all = calloc((size_t)lay->stages, sizeof *l->all);
    l->messages = calloc(1, sizeof *l->messages);
    l->evicting = calloc((size_t)lay->stages, sizeof *l->evicting);
    if (!l->order || !l->position || !l->all || !l->messages || !l->evicting) {
        sp_lowering_destroy(l);
        return -ENOMEM;
    }
    for (int s = 0; s < lay->stages; s++)
        l->all[s] = s;
    for (int i = 0; i < l->n; i++)
        l->position[plan->family->id(lay, l->order[i].stage, sp_lowering_op(l, i))] = i;
    return 0;
}

void sp_lowering_destroy(struct sp_lowering *l)
{
    free(l->made);
    free(l->position);
    free(l->all);
    free(l->evicting);
    free(l->exchanged);
    free(l->state);
    if (l->messages)
        clear(l->messages);
    free(l->messages);
    *l = (struct sp_lowering){0};
}

int sp_lowering_position(const struct sp_lowering *l, int stage, const struct sp_op *op)
{
    return l->position[l->plan->family->id(&l->plan->layout, stage, op)];
}

int sp_lower_begin(struct sp_lowering *l, void (*emit)(void *arg, const struct sp_action *action),
                   void *arg)
{
    const struct sp_plan *plan = l->plan;
    int classes = plan->classes.first[plan->layout.stages];

    l->emit = emit;
    l->arg = arg;
    clear(l->messages);
    memset(l->evicting, 0, (size_t)plan->layout.stages * sizeof *l->evicting);
    free(l->exchanged);
    l->exchanged = malloc(((size_t)classes + 1) * SP_TRAFFICS * sizeof *l->exchanged);
    if (!l->exchanged)
        return -ENOMEM;
    for (int c = 0; c < classes * SP_TRAFFICS; c++)
        l->exchanged[c] = -1;
    return l->plan->family->lowers->begin ? l->plan->family->lowers->begin(l) : 0;
}

int sp_lowering_unit(const struct sp_lowering *l, int i)
{
    const struct sp_family *family = l->plan->family;

    return family->lowers->unit            ? family->lowers->unit(l, i)
           : sp_lowering_op(l, i)->overlap ? 2
                                           : 1;
}

int sp_lower_ops(struct sp_lowering *l, int i)
{
    int ops = sp_lowering_unit(l, i);

    l->plan->family->lowers->lower(l, i);
    return ops;
}

void sp_lower_end(struct sp_lowering *l)
{
    if (l->plan->family->lowers->end)
        l->plan->family->lowers->end(l);
}

void sp_lower_orphans(struct sp_lowering *l,
                      void (*emit)(void *arg, const struct sp_action *action), void *arg)
{
    for (int i = 0; i < LISTS; i++)
        for (const struct message *m = l->messages->list[i]; m; m = m->next) {
            struct sp_action a = {.kind = SP_ACTION_RECV,
                                  .stage = m->to,
                                  .tensor = m->tensor,
                                  .peer = m->from,
                                  .index = -1,
                                  .number = m->number};

            emit(arg, &a);
        }
}

int sp_lower_step(struct sp_lowering *l, void (*emit)(void *arg, const struct sp_action *action),
                  void *arg)
{
    int err = sp_lower_begin(l, emit, arg);

    for (int i = 0; !err && i < l->n;)
        i += sp_lower_ops(l, i);
    if (!err)
        sp_lower_end(l);
    return err ? err : l->messages->lost ? -ENOMEM : 0;
}

/* ---- for families -------------------------------------------------------------------------- */

static void move(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                 const struct sp_eviction *e)
{
    struct sp_action a = {.kind = kind,
                          .stage = stage,
                          .index = index,
                          .tensor = e->tensor,
                          .bytes = e->bytes,
                          .eviction = e};

    l->emit(l->arg, &a);
}

/* Fetches the keys and values that are streamed in for an op, or evicts those streamed out after
 * it. */
static void stream(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index)
{
    const struct sp_evictions *e = &l->plan->evictions[stage];
    int i = l->evicting[stage].streams;

    for (; i < e->n_streams; i++) {
        bool fetched = e->streams[i].leaves.index < 0;

        if ((fetched ? e->streams[i].returns.index : e->streams[i].leaves.index) > index)
            break;
        if (fetched == (kind == SP_ACTION_FETCH))
            move(l, kind, stage, index, &e->streams[i]);
    }
    if (kind == SP_ACTION_EVICT)
        l->evicting[stage].streams = i;
}

/* Fetches what returns with an op: first what it streams, then tensors that only later ops need. */
static void fetch(struct sp_lowering *l, int stage, int index)
{
    const struct sp_evictions *e = &l->plan->evictions[stage];
    int *i = &l->evicting[stage].returning;

    stream(l, SP_ACTION_FETCH, stage, index);
    for (; *i < e->n && e->leaving[e->returning[*i]].returns.index <= index; ++*i)
        move(l, SP_ACTION_FETCH, stage, index, &e->leaving[e->returning[*i]]);
}

static void evict(struct sp_lowering *l, int stage, int index)
{
    const struct sp_evictions *e = &l->plan->evictions[stage];
    int *i = &l->evicting[stage].leaving;

    for (; *i < e->n && e->leaving[*i].leaves.index <= index; ++*i)
        move(l, SP_ACTION_EVICT, stage, index, &e->leaving[*i]);
}

static int64_t exchange_bytes(struct sp_lowering *l, enum sp_traffic traffic, int stage, int index)
{
    const struct sp_plan *plan = l->plan;
    int class = sp_op_classes_of(&plan->classes, stage)[index];
    int64_t *bytes = &l->exchanged[class * SP_TRAFFICS + (int)traffic];

    if (*bytes < 0)
        *bytes = sp_exchange_bytes(l, traffic, stage, &plan->programs[stage].ops[index]);
    return *bytes;
}

/* An exchange of an op, and of the one that overlaps with it. */
static void exchange(struct sp_lowering *l, enum sp_traffic traffic, int stage, int index)
{
    static const enum sp_tensor_kind kinds[] = {
        [SP_TRAFFIC_GATHER] = SP_TENSOR_BLOCK, [SP_TRAFFIC_SCATTER] = SP_TENSOR_GRADIENT};
    const struct sp_op *op = &l->plan->programs[stage].ops[index];
    struct sp_action a = {.kind = SP_ACTION_EXCHANGE,
                          .stage = stage,
                          .op = *op,
                          .index = index,
                          .tensor.kind = (unsigned char)kinds[traffic],
                          .number = -1};

    if (!l->shape)
        return;
    a.devices =
        traffic == SP_TRAFFIC_MEMBERS ? l->shape->context * l->shape->tensor : l->shape->pipelines;
    for (int i = 0; a.devices > 1 && i <= op->overlap; i++)
        a.bytes += exchange_bytes(l, traffic, stage, index + i);
    if (a.bytes)
        l->emit(l->arg, &a);
}

void sp_lower_run(struct sp_lowering *l, int stage, int index)
{
    sp_lower_part(l, stage, index, 0, 1);
}

void sp_lower_part(struct sp_lowering *l, int stage, int index, int op_part, int op_parts)
{
    bool evicts = l->plan->evictions != NULL;
    struct sp_action a = {.kind = SP_ACTION_RUN,
                          .stage = stage,
                          .op = l->plan->programs[stage].ops[index],
                          .op_part = op_part,
                          .op_parts = op_parts,
                          .index = index};

    if (op_part == 0 && evicts)
        fetch(l, stage, index);
    if (op_part == 0)
        exchange(l, SP_TRAFFIC_GATHER, stage, index);
    l->emit(l->arg, &a);
    if (op_part < op_parts - 1)
        return;
    if (evicts)
        stream(l, SP_ACTION_EVICT, stage, index);
    exchange(l, SP_TRAFFIC_MEMBERS, stage, index);
    exchange(l, SP_TRAFFIC_SCATTER, stage, index);
    if (evicts)
        evict(l, stage, index);
}

void sp_lower_add(struct sp_lowering *l, int stage, struct sp_tensor_id gradients)
{
    struct sp_action a = {.kind = SP_ACTION_RUN,
                          .stage = stage,
                          .op = {.part = SP_UPDATE},
                          .index = -1,
                          .tensor = gradients};

    l->emit(l->arg, &a);
}

void sp_lower_exchange(struct sp_lowering *l, enum sp_traffic traffic, int stage,
                       struct sp_tensor_id block)
{
    struct sp_action a = {.kind = SP_ACTION_EXCHANGE,
                          .stage = stage,
                          .index = -1,
                          .tensor = block,
                          .devices = l->shape->pipelines,
                          .number = -1};

    a.bytes = sp_exchange_block_bytes(l->shape, traffic, (enum sp_block_kind)block.block);
    if (a.bytes)
        l->emit(l->arg, &a);
}

static void send(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index,
                 bool during)
{
    struct sp_action a = {.kind = SP_ACTION_SEND,
                          .stage = from,
                          .index = index,
                          .tensor = t,
                          .peer = to,
                          .during = during,
                          .bytes = sp_tensor_bytes(l->plan, l->shape, &t),
                          .number = l->messages->sent};

    l->messages->sent += sp_tensor_pieces(l->plan, l->shape, &t);
    post(l->messages, (struct message){.tensor = t, .from = from, .to = to, .number = a.number});
    l->emit(l->arg, &a);
}

static void receive(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index,
                    bool home, bool during)
{
    struct sp_action a = {.kind = SP_ACTION_RECV,
                          .stage = to,
                          .tensor = t,
                          .index = index,
                          .peer = from,
                          .home = home,
                          .during = during,
                          .bytes = sp_tensor_bytes(l->plan, l->shape, &t),
                          .number = take(l->messages, &t, from, to)};

    l->emit(l->arg, &a);
}

void sp_lower_send(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index)
{
    send(l, from, to, t, index, false);
}

void sp_lower_recv(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index)
{
    receive(l, from, to, t, index, false, false);
}

void sp_lower_release(struct sp_lowering *l, int from, int to, struct sp_tensor_id t)
{
    (void)from;
    sp_lower_free(l, to, t);
}

void sp_lower_pass(struct sp_lowering *l, int from, int to, struct sp_tensor_id t)
{
    send(l, from, to, t, -1, true);
    receive(l, from, to, t, -1, false, true);
    sp_lower_free(l, from, t);
}

void sp_lower_recv_owner(struct sp_lowering *l, int from, int to, struct sp_tensor_id t)
{
    receive(l, from, to, t, -1, true, false);
}

void sp_lower_free(struct sp_lowering *l, int stage, struct sp_tensor_id t)
{
    struct sp_action a = {.kind = SP_ACTION_FREE, .stage = stage, .tensor = t};

    l->emit(l->arg, &a);
}

void sp_lower_collective(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                         struct sp_tensor_id t, int members, const int *member, int64_t bytes)
{
    bool again = kind == SP_ACTION_REDUCE && stage != member[0]; /* its group has begun */
    int64_t messages = (int64_t)members * sp_tensor_pieces(l->plan, l->shape, &t);
    struct sp_action a = {.kind = kind,
                          .stage = stage,
                          .index = index,
                          .tensor = t,
                          .members = members,
                          .member = member,
                          .bytes = bytes,
                          .number = l->messages->sent - (again ? messages : 0)};

    l->messages->sent += again ? 0 : messages;
    l->emit(l->arg, &a);
}
