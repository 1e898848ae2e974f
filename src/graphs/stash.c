#include "graphs/stash.h"
#include "graphs/stash_parts.h"
#include "policies/ring.h"

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

void sp_chunk_layers(const struct sp_plan *plan, int layers, int stage, int chunk, int *first,
                     int *count)
{
    /* where weights travel all chunks come to every stage */
    int g =
        plan->family->kind == SP_WEIGHT_RING ? chunk : sp_global_stage(&plan->layout, stage, chunk);

    sp_part_layers(plan, layers, sp_globals(&plan->layout), g, first, count);
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
    case SP_ATTENTION_PARALLEL:
        for (int l = 0; l < layers; l++)
            sum += sp_block_stage(lay, l + 1) == stage;
        break;
    case SP_WEIGHT_RING:
        sp_part_layers(plan, layers, lay->stages, sp_ring_chunk_of(lay->stages, stage), &first,
                       &sum);
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
        return true;
    case SP_LAYERWISE:
        for (int pipe = 0; pipe < sp_pipes(lay); pipe++)
            is |= sp_home(lay, pipe, last ? sp_globals(lay) - 1 : 0).stage == stage;
    }
    return is;
}

bool sp_block_is_everywhere(const struct sp_plan *plan, int layer)
{
    return plan->family->kind == SP_WEIGHT_RING && layer < 0 && plan->layout.stages > 1;
}

bool sp_op_releases(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    if (op->pass == SP_W)
        return true;
    return op->pass == SP_B &&
           !(plan->split && plan->deferred[plan->family->id(&plan->layout, stage, op)]);
}

/* A block that the model does not have is nobody's. */
static int visit(const struct sp_model *m, enum sp_block_kind kind, int layer, sp_stage_block_fn fn,
                 void *arg)
{
    return sp_block_elements(m, kind) ? fn(arg, kind, layer) : 0;
}

/* Every worker has the ends of the model, and a chunk of its own. */
static int ring_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                           sp_stage_block_fn fn, void *arg)
{
    static const enum sp_block_kind ends[] = {SP_BLOCK_TOKENS, SP_BLOCK_POSITIONS, SP_BLOCK_NORM,
                                              SP_BLOCK_HEAD};
    int P = plan->layout.stages, first, count, err = 0;

    for (int i = 0; !err && i < 4; i++)
        err = visit(m, ends[i], -1, fn, arg);
    sp_part_layers(plan, m->layers, P, sp_ring_chunk_of(P, stage), &first, &count);
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
            return sp_ring_owner(P, c);
    }
    return 0;
}

int sp_stage_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg)
{
    const struct sp_layout *lay = &plan->layout;
    bool has_tokens = false;
    int err = 0;

    if (plan->family->kind == SP_ATTENTION_PARALLEL)
        return sp_parts_each_block(plan, m, stage, fn, arg);
    if (plan->family->kind == SP_WEIGHT_RING)
        return ring_each_block(plan, m, stage, fn, arg);
    for (int c = 0; !err && c < lay->chunks; c++) {
        int global = sp_global_stage(lay, stage, c), first, count;

        if (c > 0 && global == sp_global_stage(lay, stage, 0))
            continue; /* where two pipes meet, both share one replica */

        if (global == 0) {
            err = has_tokens ? 0 : visit(m, SP_BLOCK_TOKENS, -1, fn, arg);
            err = err ? err : visit(m, SP_BLOCK_POSITIONS, -1, fn, arg);
            has_tokens = true;
        }
        sp_chunk_layers(plan, m->layers, stage, c, &first, &count);
        for (int l = first; l < first + count; l++)
            for (int kind = SP_BLOCK_NORM1; !err && kind <= SP_BLOCK_POST; kind++)
                err = visit(m, (enum sp_block_kind)kind, l, fn, arg);
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
        return 1; /* of embedding and head the first: sp_block_is_everywhere */
    }
    globals[0] = kind == SP_BLOCK_NORM || kind == SP_BLOCK_HEAD ? last : 0;
    if (kind == SP_BLOCK_TOKENS && m->tied && last > 0)
        globals[n_globals++] = last;
    for (int g = 0, first, count; layer >= 0 && g <= last; g++) {
        struct sp_home home = sp_home(lay, 0, g);

        sp_chunk_layers(plan, m->layers, home.stage, home.chunk, &first, &count);
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

static int64_t layer_floats(const struct sp_shape *sh, enum sp_recompute recompute, bool keeps_x,
                            bool sliced)
{
    int64_t T = sh->rows, x = T * sh->model.hidden;
    int64_t attention = T * sh->q_width + T * sh->model.heads; /* output, log-sum-exp */
    int64_t qkv = T * (sh->q_width + sh->kv_width);
    bool cheap = recompute == SP_RECOMPUTE_NONE;

    switch (recompute) {
    case SP_RECOMPUTE_FULL:
        return (keeps_x ? x : 0) + (sliced ? T * sh->kv_width : 0);
    case SP_RECOMPUTE_NO_ATTENTION:
        return x + attention + (sliced ? T * sh->kv_width : 0);
    default:
        return x + qkv + attention + (int64_t)sp_shape_pre_saved(sh, cheap) +
               (int64_t)sp_shape_post_saved(sh, cheap);
    }
}

int64_t sp_stash_bytes(const struct sp_shape *sh, enum sp_recompute recompute, int every, int count,
                       bool last)
{
    int64_t floats = last ? (int64_t)sh->rows * sh->model.hidden : 0;

    for (int l = 0; l < count; l++)
        floats += layer_floats(sh, recompute, l % every == 0, false);
    return (int64_t)sizeof(float) * floats;
}

/* The shape of a slice; the whole one where sequences are not cut. */
static struct sp_shape slice_of(const struct sp_plan *plan, const struct sp_shape *sh, int slice)
{
    struct sp_shape part;
    int first, len;

    sp_slice_tokens(sh->seq, plan->layout.slices, slice, &first, &len);
    sp_shape_slice(sh, first, len, &part);
    return part;
}

/* Bytes kept for the head by the last global stage. */
static int64_t head_input(const struct sp_plan *plan, const struct sp_shape *part, int stage,
                          const struct sp_op *op)
{
    const struct sp_layout *lay = &plan->layout;
    bool ring = plan->family->kind == SP_WEIGHT_RING;
    int g = ring ? op->chunk : sp_global_stage(lay, stage, op->chunk);
    bool last = g == sp_globals(lay) - 1 || op->part == SP_HEAD;

    return last ? (int64_t)sizeof(float) * part->rows * part->model.hidden : 0;
}

int64_t sp_stash_of_op(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int every, int stage, const struct sp_op *op)
{
    const struct sp_shape part = slice_of(plan, sh, op->slice);
    int64_t floats = 0;
    int first, count;

    if (plan->family->kind == SP_ATTENTION_PARALLEL)
        return sp_parts_stash_of_op(plan, sh, recompute, stage, op);
    if (op->part == SP_HEAD)
        return 0;
    sp_chunk_layers(plan, sh->model.layers, stage, op->chunk, &first, &count);
    for (int l = 0; l < count; l++)
        floats += layer_floats(&part, sp_layer_recompute(plan, recompute, first + l),
                               l % every == 0, plan->layout.slices > 1);
    return (int64_t)sizeof(float) * floats + head_input(plan, &part, stage, op);
}

int64_t sp_stash_freed_by_op(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, int every, int stage,
                             const struct sp_op *op)
{
    int64_t all = sp_stash_of_op(plan, sh, recompute, every, stage, op);
    const struct sp_shape part = slice_of(plan, sh, op->slice);
    int64_t head = plan->family->kind == SP_ATTENTION_PARALLEL
                       ? sp_parts_head_input(plan, sh, recompute, op)
                       : head_input(plan, &part, stage, op);

    if (op->part == SP_HEAD)
        return head;
    if (op->pass != SP_B && op->pass != SP_W)
        return 0;
    if (plan->family->kind == SP_WEIGHT_RING) /* the head's input died with the head */
        return sp_op_releases(plan, stage, op) ? all - head : 0;
    if (op->pass == SP_B && sp_op_releases(plan, stage, op))
        return all;
    return op->pass == SP_B ? head : all - head;
}

int64_t sp_stash_peak(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, int stage)
{
    int64_t live = 0, peak = 0;

    for (int i = 0; i < plan->programs[stage].n; i++) {
        const struct sp_op *op = &plan->programs[stage].ops[i];
        int64_t bytes = sp_stash_of_op(plan, sh, recompute, every, stage, op);

        if (op->pass == SP_F)
            live += bytes;
        peak = live > peak ? live : peak;
        live -= sp_stash_freed_by_op(plan, sh, recompute, every, stage, op);
    }
    return peak;
}
