#include "policies/lowering/traffic.h"
#include "policies/families/ownership.h"
#include "policies/lowering/lowering.h"
#include "model/tensor_parts.h"
#include "policies/lowering/pipelines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    const struct sp_plan *plan;
    char *why;
    size_t n;
    int err;
};

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
    if (a->kind == SP_ACTION_RECV && a->number < 0)
        refuse(arg, a, "is received before it is sent");
}

static void orphan(void *arg, const struct sp_action *a)
{
    refuse(arg, a, "is sent and never received");
}

int sp_plan_check_traffic(struct sp_plan *plan, char *why, size_t n)
{
    struct walk w = {.plan = plan, .why = why, .n = n};
    struct sp_lowering l = {0};
    int err;

    free(plan->order);
    plan->order = NULL;
    err = sp_lowering_create(plan, NULL, plan->layout.stages, &l);
    if (err)
        return err;
    err = sp_lower_step(&l, follow, &w);
    if (!err)
        sp_lower_orphans(&l, orphan, &w);
    if (!err && l.made) { /* for later callers */
        plan->order = l.made;
        l.made = NULL;
    }
    sp_lowering_destroy(&l);
    return err ? err : w.err;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

struct count {
    int stages;
    int64_t *bytes; /* [stages][stages] */
};

static void add(const struct count *c, int from, int to, int64_t bytes)
{
    c->bytes[from * c->stages + to] += bytes;
}

/* Exchanges between devices of a stage stay with it. The bytes of a GATHER are sent by the other
 * members. */
static void count(void *arg, const struct sp_action *a)
{
    const struct count *c = arg;
    bool gathers = a->kind == SP_ACTION_GATHER;

    if (a->kind == SP_ACTION_RECV || a->eviction)
        return;
    if (a->kind == SP_ACTION_SEND)
        add(c, a->stage, a->peer, a->bytes);
    else if (a->members < 2)
        add(c, a->stage, a->stage, a->bytes);
    for (int k = 0; a->members > 1 && k < a->members; k++)
        if (a->member[k] != a->stage)
            add(c, gathers ? a->member[k] : a->stage, gathers ? a->stage : a->member[k],
                a->bytes / (a->members - 1));
}

/* Sums the bytes that a stage of the first pipeline sends to the others: of gradients, and of
 * weights if it updates a part. */
struct shared {
    const struct sp_plan *plan;
    const struct sp_shape *shape;
    int stage;
    int64_t bytes;
};

/* Bytes of the sums, over the devices of the stage or over those with the same keys and values, of
 * the first n elements of a block. */
static int64_t summed(const struct shared *s, enum sp_block_kind kind, uint64_t n,
                      enum sp_range_kind what)
{
    const struct sp_shape *sh = s->shape;
    struct sp_block_range range[SP_BLOCK_RANGES];
    int ranges = sp_block_ranges(&sh->whole, sh->tensor, kind, what, sh->sequence, range);
    int devices = what == SP_RANGES_KEYS ? sp_key_copies(&sh->whole, sh->tensor) : sh->tensor;

    ranges = sp_ranges_clip(range, ranges, sp_block_first(s->plan, &sh->held, kind, s->stage), n);
    return (int64_t)(sizeof(float) * sp_ranges_sum(range, ranges)) * sp_pipelines_sent(0, devices);
}

static int add_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct shared *s = arg;
    const struct sp_shape *sh = s->shape;
    uint64_t n = sp_block_held(s->plan, &sh->held, kind), first, own;
    bool shards = sp_shape_shards_gradients(sh, layer);
    int others = sh->pipelines - 1;

    sp_pipelines_part(n, 0, sh->pipelines, &first, &own);
    if (sh->tensor > 1)
        s->bytes += summed(s, kind, shards ? own : n, SP_RANGES_SUMMED) +
                    summed(s, kind, shards ? own : n, SP_RANGES_KEYS);
    if (!sh->zero)
        s->bytes += (int64_t)(n * sizeof(float)) * sp_pipelines_sent(0, sh->pipelines);
    if (sh->zero && !shards)
        s->bytes += (int64_t)((n - own) * sizeof(float));
    if (sh->zero && !sp_shape_shards_weights(sh, layer))
        s->bytes += (int64_t)(own * sp_shape_elem(sh)) * others;
    return 0;
}

/* Bytes that a stage sends to the same stage of other pipelines, and between its own devices at the
 * end of a step. */
static int64_t shared_bytes(const struct sp_plan *plan, const struct sp_shape *shape, int stage)
{
    struct shared all = {.plan = plan, .shape = shape, .stage = stage};

    if (shape)
        sp_stage_each_block(plan, &shape->held, stage, add_block, &all);
    return all.bytes;
}

int sp_plan_bytes_by_link(const struct sp_plan *plan, const struct sp_shape *shape,
                          enum sp_recompute recompute, int every, int64_t *bytes)
{
    int stages = plan->layout.stages;
    const struct count c = {.stages = stages, .bytes = bytes};
    struct sp_lowering l;
    int err = sp_lowering_create(plan, shape, stages, &l);

    if (err)
        return err;
    memset(bytes, 0, sizeof *bytes * (size_t)stages * (size_t)stages);
    l.recompute = recompute;
    l.every = every;
    err = sp_lower_step(&l, count, (void *)&c);
    sp_lowering_destroy(&l);
    for (int s = 0; s < stages; s++)
        bytes[s * stages + s] += shared_bytes(plan, shape, s);
    return err;
}
