/* Turns the slots of evictions (offload/eviction.h) into moments of the stage's program. */
#include "policies/lowering/evictions.h"
#include "plan/offload/offload.h"
#include "policies/lowering/parking.h"
#include <errno.h>
#include <stdlib.h>

/* The stage being converted. */
struct stage {
    const struct sp_plan *plan;
    const struct sp_program *prog;
    const struct sp_eviction_plan *chosen;
    int index;
    struct sp_moment *begins; /* [slots + 1] when each slot begins */
};

/* Two ops that overlap share one range of slots, whose times are cut in proportion. */
static void find_moments(struct stage *st)
{
    const struct sp_eviction_plan *a = st->chosen;
    int slot = 0, ops;

    for (int i = 0; i < st->prog->n; i += ops) {
        double sum = 0, before = 0;
        int end;

        ops = st->prog->ops[i].overlap ? 2 : 1;
        end = slot + a->op_slots[i + ops] - a->op_slots[i];
        for (int s = slot; s < end; s++)
            sum += a->seconds[s];
        for (; slot < end; slot++) {
            st->begins[slot] = (struct sp_moment){i, sum > 0 ? (float)(before / sum) : 0};
            before += a->seconds[slot];
        }
    }
    st->begins[slot] = (struct sp_moment){st->prog->n, 0};
}

/* The end of a slot, within the op that owns it. */
static struct sp_moment end_of(const struct stage *st, int slot)
{
    struct sp_moment end = st->begins[slot + 1];

    if (end.index != st->begins[slot].index)
        end = (struct sp_moment){st->begins[slot].index, 1};
    return end;
}

/* The layers of an op, each of which is a unit; a part of a layer is one unit. */
static void layers_of(const struct stage *st, const struct sp_shape *sh, const struct sp_op *op,
                      int *first, int *count)
{
    *first = op->chunk;
    *count = 1;
    if (op->part == SP_CHUNK)
        sp_chunk_layers(st->plan, sh->model.layers, st->index, op->chunk, first, count);
}

/* Lists an eviction for each unit that leaves: units follow the layers of the forwards in turn. */
static void list_units(const struct stage *st, const struct sp_shape *sh, struct sp_evictions *e)
{
    const struct sp_eviction_plan *a = st->chosen;
    int unit = 0, n = 0, first, count, each;

    for (int i = 0; i < st->prog->n; i++) {
        const struct sp_op *op = &st->prog->ops[i];

        if (!sp_op_keeps_layers(op))
            continue;
        layers_of(st, sh, op, &first, &count);
        each = count ? (a->op_slots[i + 1] - a->op_slots[i]) / count : 0;
        for (int k = 0; k < count; k++, unit++) {
            const struct sp_unit *u = &a->units[unit];

            if (!u->out)
                continue;
            e->leaving[n++] = (struct sp_eviction){
                .tensor = {.kind = SP_TENSOR_STASH,
                           .block = op->part,
                           .slice = op->slice,
                           .mb = op->mb,
                           .at = first + k},
                .bytes = sp_unit_leaving(u),
                .unit = unit,
                .leaves = end_of(st, u->made + each - 1),
                .gone = st->begins[u->gone],
                .returns = st->begins[u->back],
                .used = st->begins[u->used],
            };
        }
    }
}

/* Lists fetches by the op and slot with which they return; within an op, first those that it
 * uses. */
static void list_returns(const struct stage *st, struct sp_evictions *e, int *by_unit)
{
    const struct sp_eviction_plan *a = st->chosen;
    int n = 0;

    for (int i = 0; i < e->n; i++)
        by_unit[e->leaving[i].unit] = i;
    for (int from = 0, to = 0; from < a->n_slots; from = to) {
        while (to < a->n_slots && st->begins[to].index == st->begins[from].index)
            to++;
        for (int later = 0; later < 2; later++)
            for (int s = from; s < to; s++)
                for (int u = a->returns[s]; u >= 0; u = a->next_return[u])
                    if (later == (a->units[u].used >= to))
                        e->returning[n++] = by_unit[u];
    }
}

/* Lists the keys fetched for the attention of layer `layer` of op `index` in a slot, and the
 * eviction after it. */
static void list_stream(const struct stage *st, struct sp_evictions *e, int index, int layer,
                        int slot)
{
    const struct sp_op *op = &st->prog->ops[index];
    const struct sp_moment none = {-1, 0}, begins = st->begins[slot], ends = end_of(st, slot);
    struct sp_eviction stream = {
        .tensor = {.kind = SP_TENSOR_KV, .slice = op->slice, .mb = op->mb, .at = layer},
        .unit = -1};

    stream.bytes = st->chosen->slot_streamed_in[slot];
    stream.leaves = stream.gone = none;
    stream.returns = begins;
    stream.used = ends;
    if (stream.bytes)
        e->streams[e->n_streams++] = stream;
    stream.bytes = st->chosen->slot_streamed_out[slot];
    stream.returns = stream.used = none;
    stream.leaves = ends;
    stream.gone = (struct sp_moment){index + 1 < st->prog->n ? index + 1 : -1, 0};
    if (stream.bytes)
        e->streams[e->n_streams++] = stream;
}

static void list_streams(const struct stage *st, const struct sp_shape *sh, struct sp_evictions *e)
{
    const struct sp_eviction_plan *a = st->chosen;
    int first, count;

    e->n_streams = 0;
    for (int i = 0; i < st->prog->n; i++) {
        const struct sp_op *op = &st->prog->ops[i];

        if (op->part != SP_CHUNK)
            continue;
        layers_of(st, sh, op, &first, &count);
        for (int k = 0; k < count; k++) {
            int layer = op->pass == SP_F ? k : count - 1 - k;

            list_stream(st, e, i, first + layer,
                        a->slot[a->op_slots[i] + (op->pass == SP_F ? 2 * k : k)]);
        }
    }
}

static int apply(const struct sp_offload *offload, const struct sp_shape *sh, struct sp_plan *plan,
                 int stage)
{
    const struct sp_eviction_plan *a = &offload->evictions[stage];
    struct sp_evictions *e = &plan->evictions[stage];
    struct stage st = {.plan = plan,
                       .prog = &plan->programs[stage],
                       .chosen = a,
                       .index = stage,
                       .begins = calloc((size_t)a->n_slots + 1, sizeof *st.begins)};
    int *by_unit = calloc((size_t)a->n_units + 1, sizeof *by_unit), n = 0, streams = 0;

    for (int i = 0; i < a->n_units; i++)
        n += a->units[i].out != 0;
    for (int s = 0; s < a->n_slots; s++)
        streams += (a->slot_streamed_in[s] > 0) + (a->slot_streamed_out[s] > 0);
    if (!st.begins || !by_unit || sp_evictions_reserve(e, n, streams)) {
        free(st.begins);
        free(by_unit);
        return -ENOMEM;
    }
    find_moments(&st);
    list_units(&st, sh, e);
    list_returns(&st, e, by_unit);
    list_streams(&st, sh, e);
    free(st.begins);
    free(by_unit);
    return 0;
}

int sp_offload_apply(struct sp_offload *offload, const struct sp_shape *sh, struct sp_plan *plan)
{
    int err;

    sp_evictions_destroy(plan->evictions, plan->layout.stages);
    plan->evictions = sp_evictions_new(plan->layout.stages);
    err = plan->evictions ? 0 : -ENOMEM;
    for (int s = 0; !err && s < offload->stages; s++)
        err = apply(offload, sh, plan, s);
    if (!err && offload->parking) {
        sp_parking_destroy(plan->parking);
        plan->parking = offload->parking;
        offload->parking = NULL;
    }
    return err;
}

void sp_offload_undo(struct sp_plan *plan)
{
    sp_evictions_destroy(plan->evictions, plan->layout.stages);
    plan->evictions = NULL;
    sp_parking_destroy(plan->parking);
    plan->parking = NULL;
}
