#include "plan/memory.h"
#include "policies/families/activations.h"
#include "policies/families/layerwise/layerwise.h"
#include "kernels/backend.h"
#include "policies/families/slice_buffers.h"
#include "model/tensor_parts.h"
#include "policies/lowering/pipelines.h"
#include "sp_error.h"
#include <stdlib.h>

struct parameters {
    const struct sp_plan *plan;
    const struct sp_shape *shape;
    int64_t held, updated;
};

static int add_parameters(void *arg, enum sp_block_kind kind, int layer)
{
    struct parameters *p = arg;
    uint64_t held = sp_block_held(p->plan, &p->shape->held, kind), first, updated;

    (void)layer;
    sp_pipelines_part(held, 0, p->shape->zero ? p->shape->pipelines : 1, &first, &updated);
    p->held += (int64_t)held;
    p->updated += (int64_t)updated;
    return 0;
}

static struct parameters parameters_of(const struct sp_plan *plan, const struct sp_shape *sh,
                                       int stage)
{
    struct parameters p = {.plan = plan, .shape = sh};

    sp_stage_each_block(plan, &sh->held, stage, add_parameters, &p);
    return p;
}

/* Weights as products read them, all versions, with gradients; and two moments, with weights in f32 if those are not. */
int64_t sp_memory_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct parameters p = parameters_of(plan, sh, stage);
    int64_t f32 = sizeof(float), ops = (int64_t)sp_shape_elem(sh) + f32;
    int64_t optimizer = 2 * f32 + (sh->dtype == SP_F32 ? 0 : f32);

    return ops * p.held + optimizer * p.updated +
           (sp_weight_versions(plan, stage) - 1) * (int64_t)sp_shape_elem(sh) * p.held +
           (plan->states_twice ? (ops + optimizer) * p.updated : 0);
}

int64_t sp_memory_parameters(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    return parameters_of(plan, sh, stage).held;
}

int64_t sp_memory_updated(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    return parameters_of(plan, sh, stage).updated;
}

int64_t sp_memory_optimizer(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    return 2 * (int64_t)sizeof(float) * sp_memory_updated(plan, sh, stage) *
           (plan->states_twice ? 2 : 1);
}

/* Whether all of the head is on a stage. */
static bool has_head(const struct sp_plan *plan, int stage)
{
    return sp_is_end_stage(plan, stage, true) && !plan->family->shares_vocabulary;
}

/* Rows of logits that are there at a time. */
static int64_t logit_rows(const struct sp_shape *sh)
{
    if (sh->tensor > 1 && sp_shape_keeps_logits(sh))
        return (int64_t)sh->rows * sp_shape_shares(sh);
    return sh->head_rows;
}

/* Scratch buffers of the codelets: one of each size lasts as long as the run. */
static int64_t scratch_elements(const struct sp_shape *sh, enum sp_recompute recompute, bool head)
{
    int64_t T = sh->rows, h = sh->model.hidden, x = T * h, f = sh->model.mlp, part = sh->mlp_rows;
    int64_t heads = 2 * T * sh->q_width + sp_in_f32(sh, 2 * T * sh->model.heads);
    int64_t elements = sh->rms ? part * f : 0;

    if (recompute == SP_RECOMPUTE_SELECTIVE)
        elements += x + part * (h + f) + T * (f > h ? f : h);
    else if (recompute != SP_RECOMPUTE_NONE)
        elements += x + x + part * (h + sh->up_width + f);
    if (sp_mlp_comes_in_chunks(sh, recompute))
        elements += (int64_t)sp_shape_post_chunk(sh);
    if (sh->model.qk_norm) /* beside n1, where that is no longer there, and by themselves */
        elements += (recompute == SP_RECOMPUTE_NONE        ? heads
                     : recompute == SP_RECOMPUTE_SELECTIVE ? x + heads
                                                           : 2 * heads);
    if (head)
        elements += 2 * x + sp_in_f32(sh, 2 * T) + logit_rows(sh) * sp_logits_ld(sh->held.vocab);
    return elements;
}

/* What waits between a B and the W that completes it, besides the stash, at the highest: gradients
 * dy, dr, du, dq, dkv of every layer, and what recompute brought back. */
static int64_t waiting_elements(const struct sp_plan *plan, const struct sp_shape *sh,
                                enum sp_recompute recompute, int stage)
{
    int64_t T = sh->rows, x = T * sh->model.hidden, q = T * sh->q_width;
    int64_t parts = sp_shape_shares(sh); /* of all of them dy and dr are there */
    int64_t layer = 2 * parts * x + T * sh->up_width + q + T * sh->kv_width, live = 0, peak = 0;

    if (recompute == SP_RECOMPUTE_FULL || recompute == SP_RECOMPUTE_NO_ATTENTION)
        layer += (int64_t)(sp_shape_pre_saved(sh, true) + sp_shape_post_saved(sh, true));
    if (recompute == SP_RECOMPUTE_FULL)
        layer += x + q;
    for (int i = 0; i < plan->programs[stage].n; i++) {
        const struct sp_op *op = &plan->programs[stage].ops[i];
        int first, count;

        if (op->part == SP_HEAD)
            continue;
        sp_chunk_layers(plan, sh->model.layers, stage, op->chunk, &first, &count);
        if (op->pass == SP_B && !sp_op_releases(plan, stage, op))
            live += count * layer;
        peak = live > peak ? live : peak;
        if (op->pass == SP_W)
            live -= count * layer;
    }
    return peak;
}

struct replicas {
    const struct sp_plan *plan;
    const struct sp_model *model;
    int64_t count[SP_BLOCK_KINDS];
};

static int count_replica(void *arg, enum sp_block_kind kind, int layer)
{
    struct replicas *r = arg;
    int stages[SP_MAX_HOLDERS];

    r->count[kind] += sp_block_holders(r->plan, r->model, kind, layer, stages) > 1;
    return 0;
}

/* Gradients of the other replicas on their way: up to three of a size, see graphs/gradients.c; or what a
 * stage holds for others. */
static int64_t replica_elements(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct replicas r = {.plan = plan, .model = &sh->model};
    int64_t elements = 0;

    if (plan->family->for_others)
        return plan->family->for_others(plan, sh, stage);
    sp_stage_each_block(plan, &sh->held, stage, count_replica, &r);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        elements += (r.count[kind] < 3 ? r.count[kind] : 3) *
                    (int64_t)sp_block_elements(&sh->held, (enum sp_block_kind)kind);
    return sp_in_f32(sh, elements);
}

static int count_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct replicas *r = arg;

    (void)layer;
    r->count[kind]++;
    return 0;
}

/* Those of other pipelines, likewise. */
static int64_t pipeline_elements(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct replicas r = {.plan = plan, .model = &sh->model};
    int64_t elements = 0;

    if (sh->pipelines <= 1)
        return 0;
    sp_stage_each_block(plan, &sh->held, stage, count_block, &r);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        uint64_t first, n = sp_block_held(plan, &sh->held, (enum sp_block_kind)kind);

        sp_pipelines_part(n, 0, sh->zero ? sh->pipelines : 1, &first, &n);
        elements += (r.count[kind] < 3 ? r.count[kind] : 3) * (int64_t)n;
    }
    return sp_in_f32(sh, elements);
}

/* Gradients of what devices that share parameters all have, by themselves, and up to three of others' of a size. */
static int64_t packed_elements(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int64_t rounds = sp_pipelines_exchanges(0, sh->tensor, e), elements = 0;
    struct replicas r = {.plan = plan, .model = &sh->held};

    if (sh->tensor <= 1)
        return 0;
    sp_stage_each_block(plan, &sh->held, stage, count_block, &r);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        uint64_t n =
            sp_block_summed(&sh->held, (enum sp_block_kind)kind, sh->sequence,
                            sp_block_first(plan, &sh->held, (enum sp_block_kind)kind, stage),
                            sp_block_held(plan, &sh->held, (enum sp_block_kind)kind));
        int64_t others = r.count[kind] * rounds;

        elements += r.count[kind] ? (1 + (others < 3 ? others : 3)) * (int64_t)n : 0;
    }
    return sp_in_f32(sh, elements);
}

/* Where devices share parameters, beside what a layer has without: of all parts of the tokens, gradients dy and dr, and
 * shares of dn with those that come from the others. */
static int64_t parts_elements(const struct sp_shape *slice)
{
    int64_t parts = sp_shape_shares(slice), x = (int64_t)slice->rows * slice->model.hidden;

    if (slice->tensor <= 1)
        return 0;
    return x * (parts > 1 ? 4 * parts - 1 : 3) +
           sp_in_f32(slice,
                     2 * (int64_t)slice->rows * parts * slice->tensor); /* statistics of logits */
}

/* Where devices share tokens, beside what attention has without: of d_o, dq and dkv what is theirs, and what
 * comes from the others or goes to them; around a ring, keys and values of a turn and of the next, and their
 * gradients. */
static int64_t context_elements(const struct sp_shape *sh, const struct sp_shape *slice)
{
    struct sp_shape heads;

    if (slice->context <= 1)
        return 0;
    if (slice->ring)
        return 4 * (int64_t)sh->rows * sh->kv_width +
               (int64_t)slice->rows / 2 * (sh->q_width + sp_in_f32(sh, sh->model.heads) + 1);
    sp_shape_heads(slice, &heads);
    return (int64_t)slice->rows * slice->context * (3 * heads.q_width + 2 * heads.kv_width);
}

/* Where devices share tokens or parameters; both: shares of q, kv and o beside what is joined of them. `slice` is the
 * longest one's shape. */
static int64_t exchange_elements(const struct sp_shape *sh, const struct sp_shape *slice)
{
    struct sp_shape all, part;
    bool joins = slice->tensor > 1 && slice->context > 1;

    sp_shape_joined(sh, &all);
    sp_shape_joined(slice, &part);
    return parts_elements(slice) + context_elements(&all, &part) +
           (joins ? (int64_t)part.rows * 2 * (part.q_width + part.kv_width) : 0);
}

int64_t sp_memory_tokens(const struct sp_shape *sh)
{
    return 2 * (int64_t)sizeof(int32_t) * sp_shape_shares(sh) * sh->rows;
}

/* Tokens of a step and of the next: of all micro-batches inputs where the model begins, targets where it ends or, where
 * all stages share the vocabulary, on each. See graphs/tokens.h. */
static int64_t tokens_bytes(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    const int64_t most = INT64_MAX / 16; /* so that sums with others stay in range */
    int64_t ends = sp_is_end_stage(plan, stage, false), bytes;

    ends += plan->family->shares_vocabulary || sp_is_end_stage(plan, stage, true);
    if (__builtin_mul_overflow(sp_memory_tokens(sh), ends * plan->layout.micro_batches, &bytes))
        return most;
    return bytes < most ? bytes : most;
}

int64_t sp_memory_fixed(const struct sp_plan *plan, const struct sp_shape *sh,
                        const struct sp_shape *slice, enum sp_recompute recompute, int stage)
{
    int64_t x = (int64_t)slice->rows * slice->model.hidden;
    int64_t tensors = plan->layout.stages > 1 ? sp_boundary_buffers(plan, stage) + 1 : 2;
    int64_t crossing =
        plan->family->travelling ? plan->family->travelling(plan, sh, stage, x) + x : tensors * x;
    bool last = has_head(plan, stage);

    return tokens_bytes(plan, sh, stage) +
           (int64_t)sp_shape_elem(sh) *
               (crossing + exchange_elements(sh, slice) + scratch_elements(slice, recompute, last) +
                replica_elements(plan, sh, stage) + pipeline_elements(plan, sh, stage) +
                packed_elements(plan, sh, stage));
}

/* Whether no backward of a stage has its MLP whole. */
static bool cuts_mlp(const struct sp_plan *plan, const struct sp_shape *sh,
                     enum sp_recompute recompute)
{
    return !plan->split && !plan->family->norms_apart && sp_mlp_comes_in_chunks(sh, recompute);
}

static bool shares_slices(const struct sp_plan *plan)
{
    return plan->family->parts_of || plan->family->shares_attention;
}

/* Backward of one layer, boundary buffers, what recompute brings back, the other replica's part
 * of a tied table's gradient, scratch. What comes from elsewhere, or is read by attention, is of the lengths of slices. */
static int64_t workspace_of(const struct sp_plan *plan, const struct sp_shape *sh,
                            enum sp_recompute recompute, int every, int stage)
{
    const struct sp_family *family = plan->family;
    bool last = has_head(plan, stage), chunks;
    struct sp_shape op = *sh, slice;
    const struct sp_shape *room;
    int64_t x, q, kv, x_room, q_room, own_q, elements;

    sp_memory_longest_slice(plan, sh, &slice);
    if (family->workspace)
        return (int64_t)sp_shape_elem(sh) *
               (family->workspace(plan, sh, recompute, stage) + exchange_elements(sh, &slice) +
                scratch_elements(&slice, recompute, last) + pipeline_elements(plan, sh, stage) +
                packed_elements(plan, sh, stage));
    op.rows = (int)sp_memory_slice_rows(plan, sh, stage, false);
    x = (int64_t)op.rows * sh->model.hidden;
    q = (int64_t)op.rows * sh->q_width;
    /* of slices keys and values stay, and the gradients of all are counted below */
    kv = plan->layout.slices > 1 && !shares_slices(plan) ? 0 : (int64_t)op.rows * sh->kv_width;
    /* as sp_op_room has it: of the longest slice, or of a slice of each length */
    room = !plan->split && sp_slices_take_turns(plan, sh) ? &slice : &op;
    x_room = (int64_t)room->rows * sh->model.hidden;
    q_room = (int64_t)room->rows * sh->q_width;
    chunks = cuts_mlp(plan, sh, recompute);
    own_q = sp_shape_exchanges(sh) ? q : q_room;
    elements = x + kv + own_q + 2 * x_room + q_room +
               (chunks ? 0 : (int64_t)room->rows * sh->up_width); /* dy, dkv, dq, dr, dx, do, du */
    elements += family->travelling ? family->travelling(plan, sh, stage, x)
                                   : sp_boundary_buffers(plan, stage) * x;
    elements += exchange_elements(sh, &slice) + scratch_elements(&slice, recompute, last) +
                waiting_elements(plan, sh, recompute, stage);
    elements += replica_elements(plan, sh, stage) + pipeline_elements(plan, sh, stage) +
                packed_elements(plan, sh, stage);
    if (plan->layout.slices > 1) /* dkv of all slices of a micro-batch, in every layer of a chunk */
        elements +=
            (int64_t)sp_most_layers(plan, sh->model.layers, stage) * sh->rows * sh->kv_width;
    if (recompute == SP_RECOMPUTE_FULL || recompute == SP_RECOMPUTE_NO_ATTENTION)
        elements += every * (x_room + q_room + own_q + kv +
                             sp_in_f32(sh, (int64_t)(own_q / sh->q_width) * sh->model.heads) +
                             (int64_t)sp_shape_pre_saved(room, true) +
                             (int64_t)(chunks ? sp_shape_residual_saved(room)
                                              : sp_shape_post_saved(room, true)));
    return (int64_t)sp_shape_elem(sh) * elements;
}

/* How layers of a stage recompute: a bit for each mode. */
static unsigned modes_of(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    unsigned modes = 0;

    for (int c = 0; c < sp_chunks_of(plan); c++) {
        int first, count;

        sp_chunk_layers(plan, sh->model.layers, stage, c, &first, &count);
        for (int l = first; l < first + count; l++)
            modes |= 1u << plan->recompute[l];
    }
    return modes;
}

/* The workspace of layers that recompute differently: those of full and no-attention recompute in
 * the same buffers, selective ones in others. */
static int64_t mixed_workspace(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    int64_t none = workspace_of(plan, sh, SP_RECOMPUTE_NONE, 1, stage), other = 0, selective = 0;
    unsigned modes = modes_of(plan, sh, stage);

    for (enum sp_recompute mode = SP_RECOMPUTE_NONE; mode <= SP_RECOMPUTE_FULL; mode++) {
        int64_t more;

        if (!(modes >> mode & 1))
            continue;
        more = workspace_of(plan, sh, mode, 1, stage) - none;
        if (modes == 1u << mode) /* all alike */
            return none + more;
        if (mode == SP_RECOMPUTE_SELECTIVE)
            selective = more;
        else if (more > other)
            other = more;
    }
    return none + other + selective;
}

struct sp_memory sp_memory_of_stage(const struct sp_plan *plan, const struct sp_shape *sh,
                                    enum sp_recompute recompute, int every, int stage)
{
    return (struct sp_memory){
        .states = sp_memory_states(plan, sh, stage),
        .activations = sp_stash_peak(plan, sh, recompute, every, stage),
        .workspace = (plan->recompute ? mixed_workspace(plan, sh, stage)
                                      : workspace_of(plan, sh, recompute, every, stage)) +
                     sp_memory_unequal(plan, sh, recompute, every, stage) +
                     tokens_bytes(plan, sh, stage),
    };
}
