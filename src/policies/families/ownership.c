#include "policies/families/ownership.h"
#include "policies/families/attention_parallel/attention_parallel.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/families/weight_ring/ring.h"

void sp_partition(int layers, int parts, int part, int *first, int *count)
{
    int each = layers / parts, rest = layers % parts;

    *count = each + (part < rest);
    *first = part * each + (part < rest ? part : rest);
}

void sp_part_layers(const struct sp_plan *plan, int layers, int parts, int c, int *first,
                    int *count)
{
    if (plan->first_layer) {
        *first = plan->first_layer[c];
        *count = plan->first_layer[c + 1] - *first;
    } else {
        sp_partition(layers, parts, c, first, count);
    }
}

int sp_chunk_global(const struct sp_plan *plan, int stage, int chunk)
{
    /* where weights travel all chunks come to every stage, and where slices are shared some do */
    bool named = plan->family->kind == SP_WEIGHT_RING || plan->family->kind == SP_MULTIPLEXED;

    return named ? chunk : sp_global_stage(&plan->layout, stage, chunk);
}

void sp_chunk_layers(const struct sp_plan *plan, int layers, int stage, int chunk, int *first,
                     int *count)
{
    sp_part_layers(plan, layers, sp_globals(&plan->layout), sp_chunk_global(plan, stage, chunk),
                   first, count);
}

int sp_stage_layers(const struct sp_plan *plan, int layers, int stage)
{
    const struct sp_layout *lay = &plan->layout;
    int sum = 0, first, count;

    switch (plan->family->kind) {
    case SP_LAYERWISE:
        for (int c = 0; c < lay->chunks; c++) {
            sp_chunk_layers(plan, layers, stage, c, &first, &count);
            sum += count;
        }
        break;
    case SP_MULTIPLEXED:
        sp_chunk_layers(plan, layers, stage, stage, &first, &sum);
        break;
    case SP_ATTENTION_PARALLEL:
        for (int l = 0; l < layers; l++)
            sum += sp_block_stage(lay, l + 1) == stage;
        break;
    case SP_WEIGHT_RING:
        for (int c = 0; c < lay->stages; c++) {
            sp_part_layers(plan, layers, lay->stages, c, &first, &count);
            sum += sp_ring_owner(lay->map->ring, c) == stage ? count : 0;
        }
        break;
    case SP_SHARDED:
        sum = layers;
        break;
    }
    return sum;
}

bool sp_is_end_stage(const struct sp_plan *plan, int stage, bool last)
{
    const struct sp_layout *lay = &plan->layout;
    bool is = false;

    switch (plan->family->kind) {
    case SP_ATTENTION_PARALLEL:
        return stage == 0;
    case SP_WEIGHT_RING:
    case SP_SHARDED:
    case SP_MULTIPLEXED: /* all have parts of the first slices, and of the last ones */
        return true;
    case SP_LAYERWISE:
        for (int pipe = 0; pipe < sp_pipes(lay); pipe++)
            is |= sp_home(lay, pipe, last ? sp_globals(lay) - 1 : 0).stage == stage;
    }
    return is;
}

static int flights_each(const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    int most = lay->slices;

    for (int g = 0; plan->family->kind == SP_MULTIPLEXED && g < lay->stages; g++)
        most = sp_parts_of(lay, g) > most ? sp_parts_of(lay, g) : most;
    return most;
}

int sp_flights_of(const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    int chunks = plan->family->kind == SP_MULTIPLEXED ? lay->stages : lay->chunks;

    return chunks * lay->micro_batches * flights_each(plan);
}

int sp_flight_number(const struct sp_plan *plan, int chunk, int mb, int slice)
{
    return (chunk * plan->layout.micro_batches + mb) * flights_each(plan) + slice;
}

bool sp_is_sharded(const struct sp_plan *plan)
{
    return plan->family->kind == SP_SHARDED;
}

size_t sp_block_held(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind)
{
    size_t n = sp_block_elements(m, kind), parts = (size_t)plan->layout.stages;

    return sp_is_sharded(plan) ? ((n + parts - 1) / parts + 7) / 8 * 8 : n;
}

size_t sp_block_first(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                      int stage)
{
    return sp_is_sharded(plan) ? (size_t)stage * sp_block_held(plan, m, kind) : 0;
}

/* A block that the model does not have is nobody's. */
static int visit(const struct sp_model *m, enum sp_block_kind kind, int layer, sp_stage_block_fn fn,
                 void *arg)
{
    return sp_block_elements(m, kind) ? fn(arg, kind, layer) : 0;
}

static int visit_layers(const struct sp_model *m, int first, int count, sp_stage_block_fn fn,
                        void *arg)
{
    int err = 0;

    for (int l = first; l < first + count; l++)
        for (int kind = SP_BLOCK_NORM1; !err && kind <= SP_BLOCK_POST; kind++)
            err = visit(m, (enum sp_block_kind)kind, l, fn, arg);
    return err;
}

static int ring_holder(const struct sp_plan *plan, int layers, int layer)
{
    int P = plan->layout.stages, first, count;

    for (int c = 0; c < P; c++) {
        sp_part_layers(plan, layers, P, c, &first, &count);
        if (layer < first + count)
            return sp_ring_owner(plan->layout.map->ring, c);
    }
    return 0;
}

/* Every worker has the ends of the model, and the chunks that it owns; sharded, its part of all. */
static int worker_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                             sp_stage_block_fn fn, void *arg)
{
    static const enum sp_block_kind ends[] = {SP_BLOCK_TOKENS, SP_BLOCK_POSITIONS, SP_BLOCK_NORM,
                                              SP_BLOCK_HEAD};
    int P = plan->layout.stages, err = 0, first, count;

    for (int i = 0; !err && i < 4; i++)
        err = visit(m, ends[i], -1, fn, arg);
    if (sp_is_sharded(plan))
        return err ? err : visit_layers(m, 0, m->layers, fn, arg);
    for (int c = 0; !err && c < P; c++) {
        sp_part_layers(plan, m->layers, P, c, &first, &count);
        if (sp_ring_owner(plan->layout.map->ring, c) == stage)
            err = visit_layers(m, first, count, fn, arg);
    }
    return err;
}

int sp_stage_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg)
{
    const struct sp_layout *lay = &plan->layout;
    bool has_tokens = false;
    int err = 0;

    if (plan->family->kind == SP_ATTENTION_PARALLEL)
        return sp_parts_each_block(plan, m, stage, fn, arg);
    if (plan->family->kind == SP_WEIGHT_RING || sp_is_sharded(plan))
        return worker_each_block(plan, m, stage, fn, arg);
    for (int c = 0; !err && c < lay->chunks; c++) {
        int global = sp_global_stage(lay, stage, c), first, count;

        if (c > 0 && global == sp_global_stage(lay, stage, 0))
            continue; /* where two pipes meet, both share one replica */

        if (global == 0) {
            err = has_tokens ? 0 : visit(m, SP_BLOCK_TOKENS, -1, fn, arg);
            err = err ? err : visit(m, SP_BLOCK_POSITIONS, -1, fn, arg);
            has_tokens = true;
        }
        sp_part_layers(plan, m->layers, sp_globals(lay), global, &first, &count);
        err = err ? err : visit_layers(m, first, count, fn, arg);
        if (!err && global == sp_globals(lay) - 1) {
            err = visit(m, SP_BLOCK_NORM, -1, fn, arg);
            if (!err && !(m->tied && has_tokens))
                err = visit(m, m->tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD, -1, fn, arg);
            has_tokens |= m->tied;
        }
    }
    return err;
}

int sp_block_holders(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                     int layer, int stages[SP_MAX_HOLDERS])
{
    const struct sp_layout *lay = &plan->layout;
    int last = sp_globals(lay) - 1, globals[2], n_globals = 1, n = 0;

    if (plan->family->kind == SP_ATTENTION_PARALLEL) {
        stages[0] = sp_parts_holder(plan, kind, layer);
        return 1;
    }
    if (plan->family->kind == SP_WEIGHT_RING) {
        stages[0] = layer < 0 ? 0 : ring_holder(plan, m->layers, layer);
        return 1; /* of embedding and head, which all have, the first */
    }
    if (sp_is_sharded(plan)) {
        stages[0] = 0;
        return 1;
    }
    globals[0] = kind == SP_BLOCK_NORM || kind == SP_BLOCK_HEAD ? last : 0;
    if (kind == SP_BLOCK_TOKENS && m->tied && last > 0)
        globals[n_globals++] = last;
    for (int g = 0, first, count; layer >= 0 && g <= last; g++) {
        sp_part_layers(plan, m->layers, last + 1, g, &first, &count);
        if (layer >= first && layer < first + count)
            globals[0] = g;
    }
    for (int i = 0; i < n_globals * sp_pipes(lay); i++) {
        int stage = sp_home(lay, i / n_globals, globals[i % n_globals]).stage, at = 0;

        while (at < n && stages[at] < stage)
            at++;
        if (at < n && stages[at] == stage)
            continue;
        for (int k = n++; k > at; k--)
            stages[k] = stages[k - 1];
        stages[at] = stage;
    }
    return n;
}
