#include "policies/families/ownership.h"
#include "model/tensor_parts.h"

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
    return plan->family->facts.names_global ? chunk : sp_global_stage(&plan->layout, stage, chunk);
}

int sp_chunks_of(const struct sp_plan *plan)
{
    return plan->family->facts.names_global ? sp_globals(&plan->layout) : plan->layout.chunks;
}

void sp_chunk_layers(const struct sp_plan *plan, int layers, int stage, int chunk, int *first,
                     int *count)
{
    sp_part_layers(plan, layers, sp_globals(&plan->layout), sp_chunk_global(plan, stage, chunk),
                   first, count);
}

static const struct sp_owners *owners_of(const struct sp_plan *plan)
{
    static const struct sp_owners none = {0};

    return plan->family->owners ? plan->family->owners : &none;
}

int sp_stage_owned(const struct sp_plan *plan, int stage, int i)
{
    const struct sp_layout *lay = &plan->layout;

    if (owners_of(plan)->owned)
        return owners_of(plan)->owned(lay, stage, i);
    return i < lay->chunks ? sp_global_stage(lay, stage, i) : -1;
}

int sp_stage_layers(const struct sp_plan *plan, int layers, int stage)
{
    int sum = 0, first, count, at;

    for (int i = 0; (at = sp_stage_owned(plan, stage, i)) >= 0; i++) {
        if (plan->family->facts.parts)
            count = at > 0; /* the block that ends a layer */
        else
            sp_part_layers(plan, layers, sp_globals(&plan->layout), at, &first, &count);
        sum += count;
    }
    return sum;
}

int sp_most_layers(const struct sp_plan *plan, int layers, int stage)
{
    int most = 0;

    for (int c = 0; c < sp_chunks_of(plan); c++) {
        int first, count;

        sp_chunk_layers(plan, layers, stage, c, &first, &count);
        most = count > most ? count : most;
    }
    return most;
}

bool sp_is_end_stage(const struct sp_plan *plan, int stage, bool last)
{
    const struct sp_layout *lay = &plan->layout;

    if (plan->family->facts.every_end)
        return true;
    if (owners_of(plan)->owner)
        return owners_of(plan)->owner(plan, last ? SP_BLOCK_HEAD : SP_BLOCK_TOKENS, -1) == stage;
    for (int pipe = 0; pipe < sp_pipes(lay); pipe++)
        if (sp_chunk_owner(lay, pipe, last ? sp_globals(lay) - 1 : 0).stage == stage)
            return true;
    return false;
}

int sp_plan_groups(const struct sp_plan *plan)
{
    return plan->family->groups ? plan->family->groups(&plan->layout) : plan->family->facts.groups;
}

int sp_slices_of(const struct sp_plan *plan, int global)
{
    const struct sp_layout *lay = &plan->layout;

    return plan->family->shared ? plan->family->shared->parts_of(lay, global) : lay->slices;
}

static int activations_each(const struct sp_plan *plan)
{
    int most = 0;

    for (int g = 0; g < (plan->family->shared ? plan->layout.stages : 1); g++)
        most = sp_slices_of(plan, g) > most ? sp_slices_of(plan, g) : most;
    return most;
}

int sp_activations_count(const struct sp_plan *plan)
{
    if (plan->family->facts.parts)
        return plan->family->ids(&plan->layout);
    return sp_chunks_of(plan) * plan->layout.micro_batches * activations_each(plan);
}

int sp_activations_index(const struct sp_plan *plan, int chunk, int mb, int slice)
{
    return (chunk * plan->layout.micro_batches + mb) * activations_each(plan) + slice;
}

int sp_activations_of_op(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    struct sp_op forward = *op;

    if (!plan->family->facts.parts)
        return sp_activations_index(plan, op->chunk, op->mb, op->slice);
    forward.pass = SP_F;
    return plan->family->id(&plan->layout, stage, &forward);
}

/* True for a table with one row for each word of the vocabulary, if each stage holds some of the
 * rows. */
static bool is_by_rows(const struct sp_plan *plan, enum sp_block_kind kind)
{
    return plan->layout.vocabulary_parallel && (kind == SP_BLOCK_TOKENS || kind == SP_BLOCK_HEAD);
}

bool sp_block_is_sharded(const struct sp_plan *plan, enum sp_block_kind kind)
{
    return plan->family->facts.sharded || is_by_rows(plan, kind) ||
           (plan->family->facts.shards_ends && plan->layout.stages > 1 &&
            !sp_block_is_of_layer(kind));
}

bool sp_block_is_gathered(const struct sp_plan *plan, enum sp_block_kind kind)
{
    return sp_block_is_sharded(plan, kind) && !(is_by_rows(plan, kind) && kind == SP_BLOCK_HEAD);
}

uint64_t sp_block_held(const struct sp_plan *plan, const struct sp_model *m,
                       enum sp_block_kind kind)
{
    uint64_t n = sp_block_elements(m, kind), parts = (uint64_t)plan->layout.stages;

    if (is_by_rows(plan, kind))
        return n ? (uint64_t)sp_vocabulary_rows(m, plan->layout.stages) * (uint64_t)m->hidden : 0;
    return sp_block_is_sharded(plan, kind) ? ((n + parts - 1) / parts + 7) / 8 * 8 : n;
}

uint64_t sp_block_first(const struct sp_plan *plan, const struct sp_model *m,
                        enum sp_block_kind kind, int stage)
{
    return sp_block_is_sharded(plan, kind) ? (uint64_t)stage * sp_block_held(plan, m, kind) : 0;
}

/* ---- the blocks of a stage ---------------------------------------------------------------- */

/* No stage holds a block that the model does not have. */
static int stream(const struct sp_model *m, enum sp_block_kind kind, sp_stage_block_fn fn,
                  void *arg)
{
    return sp_block_elements(m, kind) ? fn(arg, kind, -1) : 0;
}

static int visit_layers(const struct sp_plan *plan, const struct sp_model *m, int global,
                        sp_stage_block_fn fn, void *arg)
{
    int err = 0, first, count;

    sp_part_layers(plan, m->layers, sp_globals(&plan->layout), global, &first, &count);
    for (int i = SP_LAYER_BLOCKS * first; !err && i < SP_LAYER_BLOCKS * (first + count); i++)
        err = fn(arg, sp_layer_block(i), i / SP_LAYER_BLOCKS);
    return err;
}

/* The blocks outside the layers of which every stage holds a part. */
static int visit_shared_ends(const struct sp_plan *plan, const struct sp_model *m,
                             sp_stage_block_fn fn, void *arg)
{
    int err = 0;

    for (int k = 0; !err && k < SP_BLOCK_KINDS; k++) {
        enum sp_block_kind kind = (enum sp_block_kind)k;

        if (is_by_rows(plan, kind) ||
            (plan->family->facts.shards_ends && !sp_block_is_of_layer(kind)))
            err = stream(m, kind, fn, arg);
    }
    return err;
}

/* The first global stage begins with the tables, the last one ends in norm and head. A stage that
 * has both ends of a tied model holds the table once. */
static int visit_global(const struct sp_plan *plan, const struct sp_model *m, int global,
                        bool *has_tokens, sp_stage_block_fn fn, void *arg)
{
    bool shared = plan->layout.vocabulary_parallel; /* then no single stage owns the tables */
    int err = 0;

    if (global == 0) {
        err = *has_tokens || shared ? 0 : stream(m, SP_BLOCK_TOKENS, fn, arg);
        err = err ? err : stream(m, SP_BLOCK_POSITIONS, fn, arg);
        *has_tokens = true;
    }
    err = err ? err : visit_layers(plan, m, global, fn, arg);
    if (global < sp_globals(&plan->layout) - 1)
        return err;
    err = err ? err : stream(m, SP_BLOCK_NORM, fn, arg);
    if (!err && !(m->tied && *has_tokens) && !shared)
        err = stream(m, sp_head_table(m), fn, arg);
    *has_tokens |= m->tied;
    return err;
}

/* All blocks of which the family says that this stage owns them. */
static int visit_owned(const struct sp_plan *plan, const struct sp_model *m, int stage,
                       sp_stage_block_fn fn, void *arg)
{
    int err = 0;

    for (int kind = 0; !err && kind < SP_BLOCK_KINDS; kind++) {
        enum sp_block_kind end = (enum sp_block_kind)kind;

        if (!sp_block_is_of_layer(end) && !is_by_rows(plan, end) &&
            owners_of(plan)->owner(plan, end, -1) == stage)
            err = stream(m, end, fn, arg);
    }
    for (int i = 0; !err && i < SP_LAYER_BLOCKS * m->layers; i++)
        if (owners_of(plan)->owner(plan, sp_layer_block(i), i / SP_LAYER_BLOCKS) == stage)
            err = fn(arg, sp_layer_block(i), i / SP_LAYER_BLOCKS);
    return err;
}

int sp_stage_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg)
{
    bool has_tokens = false;
    int err = visit_shared_ends(plan, m, fn, arg), at;

    if (owners_of(plan)->owner)
        return err ? err : visit_owned(plan, m, stage, fn, arg);
    for (int i = 0; !err && (at = sp_stage_owned(plan, stage, i)) >= 0; i++) {
        if (plan->family->facts.shards_ends)
            err = visit_layers(plan, m, at, fn, arg);
        else if (i == 0 || at != sp_stage_owned(plan, stage, 0)) /* once if both pipes have it
                                                                  * here */
            err = visit_global(plan, m, at, &has_tokens, fn, arg);
    }
    return err;
}

/* ---- the stages of a block ---------------------------------------------------------------- */

/* Writes the global stages that have a block, and returns how many. */
static int globals_of(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                      int layer, int globals[2])
{
    int last = sp_globals(&plan->layout) - 1;

    globals[0] = kind == SP_BLOCK_NORM || kind == SP_BLOCK_HEAD ? last : 0;
    globals[1] = last;
    for (int g = 0, first, count; layer >= 0 && g <= last; g++) {
        sp_part_layers(plan, m->layers, last + 1, g, &first, &count);
        if (layer >= first && layer < first + count)
            globals[0] = g;
    }
    return kind == SP_BLOCK_TOKENS && m->tied && last > 0 ? 2 : 1;
}

int sp_block_owners(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                    int layer, int stages[SP_MAX_OWNERS])
{
    const struct sp_layout *lay = &plan->layout;
    int globals[2], n_globals, n = 0;

    if (owners_of(plan)->owner || (plan->family->facts.shards_ends && layer < 0) ||
        is_by_rows(plan, kind)) {
        stages[0] = owners_of(plan)->owner ? owners_of(plan)->owner(plan, kind, layer) : 0;
        return 1;
    }
    n_globals = globals_of(plan, m, kind, layer, globals);
    for (int stage = 0; stage < lay->stages; stage++) {
        bool holds = false;

        for (int i = 0; i < n_globals * sp_pipes(lay); i++)
            holds |= sp_chunk_owner(lay, i / n_globals, globals[i % n_globals]).stage == stage;
        if (holds)
            stages[n++] = stage;
    }
    return n;
}
