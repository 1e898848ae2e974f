/*
 * The attention-parallel family (HelixPipe, sections 4.2 and 4.3): a layer is cut at its attention,
 * which has no parameters, and attention of different micro-batches runs on different stages. For
 * micro-batch i, block j of 0..L (post of layer j-1 and pre of layer j; embedding, head at the
 * ends) and layer l:
 *
 *   P(i,j) on stage j mod p, P(i,L) on stage 0      A(i,l) on stage (l + i/fold + 1) mod p
 *
 * If fewer than p fold micro-batches are left for the last loop, A(i,l) is on stage (l + i + 1) mod
 * p.
 *
 *   P(i,j) waits for A(i,j-1)                       A(i,l) waits for P(i,l)
 *   bP(i,j) for bA(i,j), on the last j for P(i,L)   bA(i,l) for bP(i,l+1)
 *
 * Every backward also waits for its forward. If sequences are cut, each slice has these parts.
 * Attention of a layer is on one stage for all slices of a micro-batch; that stage keeps their keys
 * and values, so attention waits for the slice before, its backward for the slice after.
 */
#include "policies/families/attention_parallel/attention_parallel.h"
#include "policies/families/families.h"
#include "policies/families/work.h"
#include "policies/refuse.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tables of the layout (struct sp_map: state). */
struct slots {
    int fold; /* micro-batches of a slot */
    enum sp_ship_wish wish;
};

int sp_attention_fold(const struct sp_layout *lay)
{
    const struct slots *slots = lay->map ? lay->map->state : NULL;

    return slots ? slots->fold : 1;
}

/* Reads the options ship= and qkv=. */
static enum sp_ship_wish read_wish(const struct sp_layout *lay)
{
    if (sp_option_is(lay, "ship", "attention"))
        return SP_WISH_ATTENTION;
    if (sp_option_is(lay, "qkv", "activations"))
        return SP_WISH_ACTIVATIONS;
    if (sp_option_is(lay, "qkv", "published"))
        return SP_WISH_PUBLISHED;
    return sp_option_is(lay, "qkv", "weights") ? SP_WISH_WEIGHTS : SP_WISH_SMALLER;
}

enum sp_ship_wish sp_ship_wish(const struct sp_layout *lay)
{
    const struct slots *slots = lay->map ? lay->map->state : NULL;

    return slots ? slots->wish : read_wish(lay);
}

int sp_block_stage(const struct sp_layout *lay, int j)
{
    return j < lay->layers ? j % lay->stages : 0;
}

/* True for a micro-batch of the last loop if fewer than p fold micro-batches were left for it. */
static bool is_left_over(const struct sp_layout *lay, int mb)
{
    int64_t loop = (int64_t)lay->stages * sp_attention_fold(lay);

    return mb / loop * loop + loop > lay->micro_batches;
}

int sp_attention_stage(const struct sp_layout *lay, int mb, int layer)
{
    return (layer + (is_left_over(lay, mb) ? mb : mb / sp_attention_fold(lay)) + 1) % lay->stages;
}

/* P.0 A.0 P.1 A.1 ... P.L */
static int places(const struct sp_layout *lay)
{
    return 2 * lay->layers + 1;
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    if (lay->layers < 1)
        snprintf(why, n,
                 "runs parts of layers, and the layers are unknown; use --layers or "
                 "--model");
    else if (lay->chunks != 1)
        snprintf(why, n, "has parts of layers, not %d chunks per stage; use --chunks 1",
                 lay->chunks);
    else if (2LL * lay->micro_batches * lay->slices * (2LL * lay->layers + 1) > SP_MAX_OPS)
        snprintf(why, n,
                 "has two ops for each of %lld parts of %lld %s, more than %d ops; make one of "
                 "them smaller",
                 2LL * lay->layers + 1, (long long)lay->micro_batches * lay->slices,
                 lay->slices > 1 ? "slices" : "micro-batches", SP_MAX_OPS);
    else
        return 0;
    return -EINVAL;
}

static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    int fold = def->attention_parallel.fold ? def->attention_parallel.fold(lay) : 1;
    struct slots *slots;
    int err;

    if (fold < 1) {
        snprintf(why, n, "has a fold of %d, not at least 1", fold);
        return -EINVAL;
    }
    slots = malloc(sizeof *slots);
    err = slots ? sp_map_create(lay, 1, NULL, NULL, map, why, n) : -ENOMEM;
    if (err) {
        free(slots);
        return err;
    }
    *slots = (struct slots){.fold = fold, .wish = read_wish(lay)};
    (*map)->state = slots;
    return 0;
}

int sp_parts_refuse(const struct sp_plan *plan, const struct sp_train_wish *wish)
{
    if (!strncmp(wish->recompute_text, "every=", 6))
        return sp_error(EINVAL,
                        "train: --recompute %s: %s keeps the input of every layer; use full",
                        wish->recompute_text, plan->def->name);
    return 0;
}

static int ids(const struct sp_layout *lay)
{
    return 2 * lay->micro_batches * lay->slices * places(lay);
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int L = lay->layers;

    if ((op->pass != SP_F && op->pass != SP_B) || op->slice >= lay->slices || op->mb < 0 ||
        op->mb >= lay->micro_batches || op->chunk < 0)
        return -1;
    if (op->part == SP_BLOCK ? op->chunk > L || stage != sp_block_stage(lay, op->chunk)
                             : op->part != SP_ATTN || op->chunk >= L ||
                                   stage != sp_attention_stage(lay, op->mb, op->chunk))
        return -1;
    return (((op->pass == SP_B) * lay->micro_batches + op->mb) * lay->slices + op->slice) *
               places(lay) +
           2 * op->chunk + (op->part == SP_ATTN);
}

/* The op on block or layer k for a slice. */
static struct sp_dep at(const struct sp_layout *lay, enum sp_pass pass, enum sp_part part, int mb,
                        int k, int slice)
{
    int stage = part == SP_BLOCK ? sp_block_stage(lay, k) : sp_attention_stage(lay, mb, k);

    return (struct sp_dep){.stage = stage,
                           .op = {.pass = (unsigned char)pass,
                                  .part = (unsigned char)part,
                                  .slice = (unsigned short)slice,
                                  .mb = mb,
                                  .chunk = k}};
}

static int deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    int i = op->mb, k = op->chunk, slice = op->slice, n = 0;
    bool block = op->part == SP_BLOCK;

    (void)stage;
    if (op->pass == SP_F) {
        if (!block)
            out[n++] = at(lay, SP_F, SP_BLOCK, i, k, slice);
        else if (k > 0)
            out[n++] = at(lay, SP_F, SP_ATTN, i, k - 1, slice);
        if (!block && slice > 0)
            out[n++] = at(lay, SP_F, SP_ATTN, i, k, slice - 1);
        return n;
    }
    out[n++] = at(lay, SP_F, (enum sp_part)op->part, i, k, slice);
    if (!block)
        out[n++] = at(lay, SP_B, SP_BLOCK, i, k + 1, slice);
    else if (k < lay->layers)
        out[n++] = at(lay, SP_B, SP_ATTN, i, k, slice);
    if (!block && slice < lay->slices - 1)
        out[n++] = at(lay, SP_B, SP_ATTN, i, k, slice + 1);
    return n;
}

static void required(const struct sp_layout *lay, sp_need_fn need, void *arg)
{
    for (int i = 0; i < lay->micro_batches * lay->slices; i++)
        for (int k = 0; k <= 2 * lay->layers; k++)
            for (int pass = SP_F; pass <= SP_B; pass++) {
                sp_need(need, arg,
                        at(lay, (enum sp_pass)pass, k % 2 ? SP_ATTN : SP_BLOCK, i / lay->slices,
                           k / 2, i % lay->slices));
            }
}

/* The output product's share of post: it has h^2 of the 9h^2 weights. */
static double out_of(const struct sp_part_costs *c)
{
    return c->post / 9;
}

/* Embedding and head cost nothing extra, as in the paper. With ship=attention, pre and the output
 * product run with attention. */
static double forward(const struct sp_plan *plan, const struct sp_costs *costs,
                      const struct sp_op *op)
{
    const struct sp_part_costs *c = &costs->parts;
    bool module = sp_ship_wish(&plan->layout) == SP_WISH_ATTENTION;
    double share = sp_plan_slice_share(plan, op->slice);

    if (op->part == SP_ATTN)
        return share * (c->attn + (module ? c->pre + out_of(c) : 0));
    return share * ((op->chunk > 0 ? c->post - (module ? out_of(c) : 0) : 0) +
                    (op->chunk < plan->layout.layers && !module ? c->pre : 0));
}

/* A block recomputes everything from the message it received. With ship=attention, attention
 * recomputes pre. */
static double again(const struct sp_plan *plan, const struct sp_costs *costs,
                    const struct sp_op *op)
{
    if (op->pass == SP_F)
        return 0;
    if (op->part != SP_ATTN)
        return costs->parts.again * forward(plan, costs, op);
    return sp_ship_wish(&plan->layout) == SP_WISH_ATTENTION
               ? sp_plan_slice_share(plan, op->slice) * costs->parts.again * costs->parts.pre
               : 0;
}

static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    double once = forward(plan, costs, op);

    (void)stage;
    return op->pass == SP_F ? once : costs->parts.backward * once + again(plan, costs, op);
}

/* Block k is post of layer k - 1 and pre of layer k; the end blocks also have embedding and head.
 * With ship=attention, pre and the output product run with attention. */
static int work_of(const struct sp_plan *plan, const struct sp_shape *sh, const struct sp_op *op,
                   struct sp_op_work *work)
{
    enum sp_shipment ships = sp_shipment(plan, sh);
    bool product = ships == SP_SHIP_QKV, module = ships == SP_SHIP_ATTENTION;
    int n = 0;

    if (op->part == SP_ATTN) {
        work->first = op->chunk;
        work->layers = 1;
        work->pre = module;
        work->attention = true;
        work->qkv_with_attention = product;
        work->out_with_attention = module;
        return 1;
    }
    if (op->chunk > 0) {
        work[n].first = op->chunk - 1;
        work[n].layers = 1;
        work[n].out_with_attention = module;
        work[n].to_head = op->chunk == sh->model.layers;
        work[n].head = work[n].to_head && op->pass == SP_B;
        work[n++].post = true;
    }
    if (op->chunk == 0 || (op->chunk < sh->model.layers && !module)) {
        work[n].first = op->chunk;
        work[n].layers = 1;
        work[n].embed = op->chunk == 0;
        work[n].qkv_with_attention = product;
        work[n++].pre = !module;
    }
    return n;
}

/* The micro-batches of a slot, and their slices, overtake each other on the way: each has a stream
 * of its own. */
static int stream(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int fold = sp_attention_fold(lay);
    int of_slot = is_left_over(lay, op->mb) ? op->mb / lay->stages % fold : op->mb % fold;

    (void)stage;
    return of_slot * lay->slices + op->slice;
}

/* The i-th block of a stage, -1 past the last. */
static int owned(const struct sp_layout *lay, int stage, int i)
{
    for (int j = 0; j <= lay->layers; j++)
        if (sp_block_stage(lay, j) == stage && i-- == 0)
            return j;
    return -1;
}

/* Embedding and head are on one stage, so a tied table needs no replica. */
static int owner(const struct sp_plan *plan, enum sp_block_kind kind, int layer)
{
    const struct sp_layout *lay = &plan->layout;

    switch (kind) {
    case SP_BLOCK_NORM1:
    case SP_BLOCK_QKV:
        return sp_block_stage(lay, layer);
    case SP_BLOCK_POST:
        return sp_block_stage(lay, layer + 1);
    default:
        return 0;
    }
}

/* If the products run with attention, so do their parameters, and devices cannot share those. */
int sp_parts_groups(const struct sp_layout *lay)
{
    return SP_GROUP_TOKENS | (sp_ship_wish(lay) == SP_WISH_ATTENTION ? 0 : SP_GROUP_PARAMETERS);
}

static const struct sp_lowerer lowers = {.stream = stream,
                                         .begin = sp_attention_parallel_lower_begin,
                                         .lower = sp_attention_parallel_lower,
                                         .end = sp_attention_parallel_lower_end};
const struct sp_owners sp_parts_owners = {.owned = owned, .owner = owner};

const struct sp_family sp_family_attention_parallel = {
    .name = "attention-parallel",
    .facts.slices = true,
    .facts.parts = true,
    .facts.post_validates = true,
    .facts.by_layer = true,
    .groups = sp_parts_groups,
    .kind = sp_parts_kind,
    .check = check,
    .place = place,
    .refuse = sp_parts_refuse,
    .id = id,
    .ids = ids,
    .deps = deps,
    .required = required,
    .cost = cost,
    .again = again,
    .work = work_of,
    .stash = sp_parts_stash,
    .lowers = &lowers,
    .owners = &sp_parts_owners,
};
