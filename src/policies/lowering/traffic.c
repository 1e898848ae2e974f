#include "policies/lowering/traffic.h"
#include "policies/families/ownership.h"
#include "policies/lowering/lowering.h"
#include "model/tensor_parts.h"
#include "policies/lowering/pipelines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that a stage was sent and has not freed. */
struct sent {
    struct sp_tensor_id tensor;
    int from, to;
    struct sent *next; /* of the same list */
};

enum { LISTS = 1 << 12 };

struct walk {
    struct sp_plan *plan;
    int *now; /* [stages] tensors on their way to or from it */
    struct sent *list[LISTS];
    char *why;
    size_t n;
    int err;
};

static struct sent **list_of(struct walk *w, const struct sp_tensor_id *t, int to)
{
    return &w->list[(sp_tensor_hash(t, LISTS) + 31 * (unsigned)to) % LISTS];
}

/* What crosses from layers to layers; weights, keys and values are counted where they are kept. */
static bool is_boundary(const struct sp_tensor_id *t)
{
    return t->kind == SP_TENSOR_X || t->kind == SP_TENSOR_DX || t->kind == SP_TENSOR_R ||
           t->kind == SP_TENSOR_DR;
}

static void depart(struct walk *w, int stage)
{
    if (++w->now[stage] > w->plan->transit[stage])
        w->plan->transit[stage] = w->now[stage];
}

static void send(struct walk *w, const struct sp_action *a)
{
    struct sent **list = list_of(w, &a->tensor, a->peer), *s = malloc(sizeof *s);

    if (!s) {
        w->err = -ENOMEM;
        return;
    }
    *s = (struct sent){a->tensor, a->stage, a->peer, *list};
    *list = s;
    depart(w, a->stage);
    depart(w, a->peer);
}

/* Nothing, if the stage did not receive it but made it. */
static void free_tensor(struct walk *w, const struct sp_action *a)
{
    for (struct sent **at = list_of(w, &a->tensor, a->stage); *at; at = &(*at)->next) {
        struct sent *s = *at;

        if (s->to != a->stage || !sp_tensor_is_same(&s->tensor, &a->tensor))
            continue;
        w->now[s->from]--;
        w->now[s->to]--;
        *at = s->next;
        free(s);
        return;
    }
}

static void refuse(struct walk *w, const struct sp_action *a, const char *what)
{
    char text[SP_TENSOR_TEXT];

    if (w->err)
        return;
    w->err = -EINVAL;
    snprintf(w->why, w->n, "order: stage %d: %s of stage %d %s", a->stage,
             sp_tensor_print(w->plan, &a->tensor, text), a->peer, what);
}

static void follow(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;

    if (a->kind == SP_ACTION_RECV && a->number < 0)
        refuse(w, a, "is received before it is sent");
    else if (a->kind == SP_ACTION_SEND && is_boundary(&a->tensor))
        send(w, a);
    else if (a->kind == SP_ACTION_FREE && is_boundary(&a->tensor))
        free_tensor(w, a);
}

static void orphan(void *arg, const struct sp_action *a)
{
    refuse(arg, a, "is sent and never received");
}

static void clear(struct walk *w)
{
    for (int i = 0; i < LISTS; i++)
        while (w->list[i]) {
            struct sent *s = w->list[i];

            w->list[i] = s->next;
            free(s);
        }
}

int sp_plan_check_traffic(struct sp_plan *plan, char *why, size_t n)
{
    int stages = plan->layout.stages, err = -ENOMEM;
    struct walk w = {.plan = plan, .why = why, .n = n};
    struct sp_lowering l = {0};

    free(plan->order);
    plan->order = NULL;
    free(plan->transit);
    plan->transit = calloc((size_t)stages, sizeof *plan->transit);
    w.now = calloc((size_t)stages, sizeof *w.now);
    if (plan->transit && w.now)
        err = sp_lowering_create(plan, NULL, stages, &l);
    err = err ? err : sp_lower_step(&l, follow, &w);
    if (!err)
        sp_lower_orphans(&l, orphan, &w);
    if (!err && l.made) { /* for those who ask for it next */
        plan->order = l.made;
        l.made = NULL;
    }
    if (l.messages)
        sp_lowering_destroy(&l);
    clear(&w);
    free(w.now);
    return err ? err : w.err;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

struct count {
    const struct sp_lowering *l;
    int64_t *bytes; /* [stages]; of links [stages][stages] */
    bool links;
};

static void add(const struct count *c, int from, int to, int64_t bytes)
{
    if (c->links)
        c->bytes[from * c->l->plan->layout.stages + to] += bytes;
    else
        c->bytes[from] += bytes;
}

/* What devices of a stage exchange stays with it. A gather is of what the others send. */
static void count(void *arg, const struct sp_action *a)
{
    const struct count *c = arg;
    bool gathers = a->kind == SP_ACTION_GATHER;

    if (a->kind == SP_ACTION_RECV || a->eviction)
        return;
    if (a->kind == SP_ACTION_SEND) {
        if (sp_lowering_process(c->l, a->stage) != sp_lowering_process(c->l, a->peer))
            add(c, a->stage, a->peer, a->bytes);
    } else if (a->members < 2) {
        add(c, a->stage, a->stage, a->bytes);
    }
    for (int k = 0; a->members > 1 && k < a->members; k++)
        if (a->member[k] != a->stage)
            add(c, gathers ? a->member[k] : a->stage, gathers ? a->stage : a->member[k],
                a->bytes / (a->members - 1));
}

/* Of the gradients, and of the weights if it updates a part, that a stage of the first pipeline sends to the
 * others. */
struct shared {
    const struct sp_plan *plan;
    const struct sp_shape *shape;
    int stage;
    int64_t bytes;
};

static int add_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct shared *s = arg;
    uint64_t n = sp_block_held(s->plan, &s->shape->held, kind), first, own;
    int pipelines = s->shape->pipelines;

    (void)layer;
    if (s->shape->tensor > 1)
        s->bytes +=
            (int64_t)sizeof(float) * sp_pipelines_sent(0, s->shape->tensor) *
            (int64_t)sp_block_summed(&s->shape->held, kind, s->shape->sequence,
                                     sp_block_first(s->plan, &s->shape->held, kind, s->stage), n);
    if (!s->shape->zero) {
        s->bytes += (int64_t)(n * sizeof(float)) * sp_pipelines_sent(0, pipelines);
        return 0;
    }
    sp_pipelines_part(n, 0, pipelines, &first, &own);
    s->bytes += (int64_t)((n - own) * sizeof(float)) +
                (int64_t)(own * sp_shape_elem(s->shape)) * (pipelines - 1);
    return 0;
}

/* One step with the stages dealt out to so many processes. */
static int walk_step(const struct sp_plan *plan, const struct sp_shape *shape,
                     enum sp_recompute recompute, int every, int processes, int64_t *bytes,
                     bool links)
{
    struct sp_lowering l;
    struct count c = {.l = &l, .bytes = bytes, .links = links};
    int err = sp_lowering_create(plan, shape, processes, &l);

    if (err)
        return err;
    l.recompute = recompute;
    l.every = every;
    err = sp_lower_step(&l, count, &c);
    sp_lowering_destroy(&l);
    return err;
}

/* What a stage sends to the same one of other pipelines, and to its own devices at the end of a step. */
static int64_t shared_bytes(const struct sp_plan *plan, const struct sp_shape *shape, int stage)
{
    struct shared all = {.plan = plan, .shape = shape, .stage = stage};

    if (shape)
        sp_stage_each_block(plan, &shape->held, stage, add_block, &all);
    return all.bytes;
}

int sp_plan_bytes_sent(const struct sp_plan *plan, const struct sp_shape *shape,
                       enum sp_recompute recompute, int every, int processes, int64_t *bytes)
{
    int err;

    memset(bytes, 0, sizeof *bytes * (size_t)plan->layout.stages);
    err = walk_step(plan, shape, recompute, every, processes, bytes, false);
    for (int s = 0; s < plan->layout.stages; s++)
        bytes[s] += shared_bytes(plan, shape, s);
    return err;
}

int sp_plan_bytes_by_link(const struct sp_plan *plan, const struct sp_shape *shape,
                          enum sp_recompute recompute, int every, int64_t *bytes)
{
    int stages = plan->layout.stages, err;

    memset(bytes, 0, sizeof *bytes * (size_t)stages * (size_t)stages);
    err = walk_step(plan, shape, recompute, every, stages, bytes, true);
    for (int s = 0; s < stages; s++)
        bytes[s * stages + s] += shared_bytes(plan, shape, s);
    return err;
}
