#include "policies/families/multiplexed/memory.h"
#include "policies/families/activations.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/lowering/lowering.h"
#include <errno.h>
#include <stdlib.h>

enum { SLACK = 2 }; /* buffers of a size that lie idle in the pool of what crosses */

/* ---- what comes and goes, by actions ---------------------------------------------------------- */

/* Buffers of a size are for tensors of that size alone, and stay. */
struct size {
    int64_t bytes;
    int live, most;
    bool crosses; /* between slices of two stages */
};

struct held {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_lowering *l;
    int *begun;   /* [stages][of stage] micro-batches whose backwards a stage has begun */
    bool *sums;   /* [stages][of stage] it sums up gradients of weights */
    bool *passed; /* [stages] what it received last is as it was, in the same process */
    struct sizes {
        struct size *size;
        int n, room;
    } * stage; /* [stages] */
    bool lost;
};

static const struct sp_layout *layout(const struct held *h)
{
    return &h->plan->layout;
}

static struct size *size_of(struct held *h, int stage, int64_t bytes, bool crosses)
{
    struct sizes *s = &h->stage[stage];

    for (int i = 0; i < s->n; i++)
        if (s->size[i].bytes == bytes && s->size[i].crosses == crosses)
            return &s->size[i];
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        struct size *more = realloc(s->size, (size_t)room * sizeof *more);

        if (!more)
            return NULL;
        s->size = more;
        s->room = room;
    }
    s->size[s->n] = (struct size){.bytes = bytes, .crosses = crosses};
    return &s->size[s->n++];
}

static void add(struct held *h, int stage, int n, int64_t bytes, bool crosses)
{
    struct size *s = bytes ? size_of(h, stage, bytes, crosses) : NULL;

    if (!s) {
        h->lost |= bytes > 0;
        return;
    }
    s->live += n;
    s->most = s->live > s->most ? s->live : s->most;
}

/* A tensor that a stage has from now on (1), or no longer (-1). */
static void add_tensor(struct held *h, int stage, int way, const struct sp_tensor_id *t)
{
    int pieces = sp_tensor_pieces(h->plan, h->sh, t);

    add(h, stage, way * pieces, sp_tensor_bytes(h->plan, h->sh, t) / pieces,
        t->kind == SP_TENSOR_X || t->kind == SP_TENSOR_DX);
}

/* Gradients of keys and values of a part, or of a stage's share of it; share -1: of all of it. */
static void add_gradient(struct held *h, int stage, int way, const struct sp_op *op, int part,
                         int share)
{
    struct sp_tensor_id t = sp_key_share_tensor(SP_TENSOR_DKV, op->chunk, op->mb, part, share);

    add_tensor(h, stage, way, &t);
}

static int computing_stage(const struct held *h, int global, int part)
{
    return sp_part_at(layout(h), global, part).stage;
}

struct sums {
    struct held *h;
    int stage, owner;
};

static int add_sum(void *arg, enum sp_block_kind kind, int layer)
{
    struct sums *s = arg;
    struct sp_tensor_id t = {
        .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)kind, .mb = s->owner, .at = layer};

    add_tensor(s->h, s->stage, 1, &t);
    return 0;
}

static bool is_together(const struct held *h, int a, int b)
{
    return sp_lowering_process(h->l, a) == sp_lowering_process(h->l, b);
}

/* Whether the gradients of a part of another stage's left slice are those that the owner made, in the same process. */
static bool has_owners(const struct held *h, int stage, const struct sp_op *op)
{
    const struct sp_layout *lay = layout(h);
    int slice = sp_part_at(lay, op->chunk, op->slice).slice;

    return sp_slice_phase(lay, op->chunk, slice) == SP_LEFT && is_together(h, stage, op->chunk) &&
           lay->stages - 1 - op->chunk < lay->slices;
}

/* The first backward of a stage for another one, or the owner's own, makes gradients of all keys that it reads; those of
 * an owner's own parts are counted with his ops. */
static void begin_gradients(struct held *h, int stage, const struct sp_op *op)
{
    int g = op->chunk, before = sp_parts_before_right(layout(h), g);
    struct sp_slice_part part = sp_part_at(layout(h), g, op->slice);
    bool reads = stage == g && sp_slice_phase(layout(h), g, part.slice) != SP_LEFT;

    for (int r = 0; stage < g && r < before; r++)
        add_gradient(h, stage, 1, op, r, stage); /* of a share */
    for (int r = 0; reads && r < before && r < op->slice; r++)
        if (computing_stage(h, g, r) != stage)
            add_gradient(h, stage, 1, op, r, -1);
    if (stage == g || has_owners(h, stage, op))
        return;
    for (int k = sp_first_shared(layout(h), g, part.slice); k <= part.slice; k++)
        add_gradient(h, stage, 1, op, sp_first_part(layout(h), g, k) + part.part, -1);
}

static void begin_backward(struct held *h, int stage, const struct sp_op *op)
{
    int at = stage * layout(h)->stages + op->chunk;

    if (h->begun[at] == op->mb) {
        h->begun[at]++;
        begin_gradients(h, stage, op);
    }
    if (op->chunk != stage && !h->sums[at]) {
        h->sums[at] = true;
        sp_stage_each_block(h->plan, &h->sh->held, op->chunk, add_sum,
                            &(struct sums){.h = h, .stage = stage, .owner = op->chunk});
    }
}

/* A share of keys that is less than a part is cut from it by the owner, and is his until nobody has it any more. */
static bool is_cut(const struct held *h, const struct sp_tensor_id *t)
{
    struct sp_op op = {.chunk = t->at, .slice = t->slice, .mb = t->mb};
    int first, len, whole;

    sp_plan_op_tokens(h->plan, h->sh->seq, &op, &first, &whole);
    sp_key_share(h->plan, h->sh->seq, t->at, t->slice, t->block - 1, &first, &len);
    return len < whole;
}

static void share_keys(struct held *h, const struct sp_action *a)
{
    const struct sp_tensor_id *t = &a->tensor;
    int owner = t->at, helper = t->block - 1;
    bool together = is_together(h, owner, helper), cut = is_cut(h, t);

    if (a->kind == SP_ACTION_SEND && cut)
        add_tensor(h, owner, 1, t);
    else if (a->kind == SP_ACTION_RECV && !together)
        add_tensor(h, helper, 1, t);
    else if (a->kind == SP_ACTION_FREE && a->stage == owner && cut && !together)
        add_tensor(h, owner, -1, t);
    else if (a->kind == SP_ACTION_FREE && a->stage == helper && (cut || !together))
        add_tensor(h, together ? owner : helper, -1, t);
}

/* Sums of gradients and gradients of keys: one that is passed on in a process stays the buffer that it was, which ends
 * where it was made. */
static void pass_gradients(struct held *h, const struct sp_action *a)
{
    if (a->kind == SP_ACTION_SEND && a->tensor.kind == SP_TENSOR_GRADIENT)
        h->sums[a->stage * layout(h)->stages + a->tensor.mb] = false;
    if (a->kind == SP_ACTION_RECV)
        h->passed[a->stage] = is_together(h, a->stage, a->peer);
    if (a->kind == SP_ACTION_RECV && !h->passed[a->stage])
        add_tensor(h, a->stage, 1, &a->tensor);
    if (a->kind != SP_ACTION_FREE)
        return;
    if (!h->passed[a->stage])
        add_tensor(h, a->stage, -1, &a->tensor);
    h->passed[a->stage] = false;
}

/* Rows, weights, and keys and values of left slices: of the stage that received them. What an op keeps anyway is counted
 * with it. */
static void receive(struct held *h, const struct sp_action *a)
{
    const struct sp_tensor_id *t = &a->tensor;

    if (t->kind == SP_TENSOR_KV && a->stage == computing_stage(h, t->at, t->slice))
        return;
    if (a->kind == SP_ACTION_RECV)
        add_tensor(h, a->stage, 1, t);
    else if (a->kind == SP_ACTION_FREE)
        add_tensor(h, a->stage, -1, t);
}

/* Rows that an op leaves for the stage after, or before. */
static void leave_rows(struct held *h, int stage, const struct sp_op *op)
{
    struct sp_tensor_id t = {.kind = op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX,
                             .slice = op->slice,
                             .mb = op->mb,
                             .at = op->chunk};

    add_tensor(h, stage, 1, &t);
}

static void ran(struct held *h, int stage, const struct sp_op *op)
{
    if (op->chunk != (op->pass == SP_F ? layout(h)->stages - 1 : 0))
        leave_rows(h, stage, op);
    if (op->pass == SP_B && op->chunk != stage)
        add_gradient(h, has_owners(h, stage, op) ? op->chunk : stage, -1, op, op->slice, -1);
}

static void follow(void *arg, const struct sp_action *a)
{
    struct held *h = arg;

    if (a->kind == SP_ACTION_RUN && a->index >= 0) {
        if (a->leg == 0 && a->op.pass == SP_B)
            begin_backward(h, a->stage, &a->op);
        if (a->leg == a->legs - 1)
            ran(h, a->stage, &a->op);
        return;
    }
    switch (a->tensor.kind) {
    case SP_TENSOR_DKV:
    case SP_TENSOR_GRADIENT:
        pass_gradients(h, a);
        break;
    case SP_TENSOR_KV:
        (a->tensor.block ? share_keys : receive)(h, a);
        break;
    case SP_TENSOR_X:
    case SP_TENSOR_DX:
    case SP_TENSOR_BLOCK:
        receive(h, a);
        break;
    default: /* what ops exchange */
        break;
    }
}

static int64_t bytes_of(const struct sizes *s)
{
    int64_t sum = 0;

    for (int i = 0; i < s->n; i++)
        sum += s->size[i].bytes * (s->size[i].most + (s->size[i].crosses ? SLACK : 0));
    return sum;
}

/* bytes[stages] in so many processes. */
static int count(const struct sp_plan *plan, const struct sp_shape *sh, int processes,
                 int64_t *bytes)
{
    size_t p = (size_t)plan->layout.stages;
    struct held h = {.plan = plan, .sh = sh};
    struct sp_lowering l;
    int err = sp_lowering_create(plan, sh, processes, &l);

    if (err)
        return err;
    h.l = &l;
    h.begun = calloc(p * p, sizeof *h.begun);
    h.sums = calloc(p * p, sizeof *h.sums);
    h.passed = calloc(p, sizeof *h.passed);
    h.stage = calloc(p, sizeof *h.stage);
    err = h.begun && h.sums && h.passed && h.stage ? sp_lower_step(&l, follow, &h) : -ENOMEM;
    for (size_t s = 0; !err && s < p; s++)
        bytes[s] = bytes_of(&h.stage[s]);
    err = h.lost ? -ENOMEM : err;
    for (size_t s = 0; h.stage && s < p; s++)
        free(h.stage[s].size);
    sp_lowering_destroy(&l);
    free(h.stage);
    free(h.passed);
    free(h.sums);
    free(h.begun);
    return err;
}

/* ---- counted once ----------------------------------------------------------------------------- */

static uint64_t hash_of(uint64_t hash, int64_t value)
{
    return (hash ^ (uint64_t)value) * 0x9e3779b97f4a7c15;
}

/* Of all that it depends on. */
static uint64_t key_of(const struct sp_plan *plan, const struct sp_shape *sh, int processes)
{
    const struct sp_layout *lay = &plan->layout;
    uint64_t key = hash_of(1, processes);

    key = hash_of(hash_of(key, sh->seq), sh->batch);
    key = hash_of(hash_of(key, (int64_t)sp_shape_elem(sh)), sh->kv_width);
    key = hash_of(hash_of(key, sh->model.hidden), sh->model.layers);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        key = hash_of(key, (int64_t)sp_block_elements(&sh->held, (enum sp_block_kind)kind));
    for (int g = 0; plan->first_layer && g < lay->stages; g++)
        key = hash_of(key, plan->first_layer[g]);
    for (int g = 0; g < lay->stages; g++)
        for (int k = 0; k < sp_parts_of(lay, g); k++) {
            struct sp_op op = {.chunk = g, .slice = (unsigned short)k};
            int first, len;

            sp_plan_op_tokens(plan, sh->seq, &op, &first, &len);
            key = hash_of(key, first);
        }
    return key;
}

/* bytes[stages]; NULL: no memory. */
static const int64_t *counted(const struct sp_plan *plan, const struct sp_shape *sh)
{
    struct sp_multiplex_cut *cut = sp_multiplex_cut_of(&plan->layout);
    int processes = plan->apart ? plan->layout.stages : 1;
    uint64_t key = key_of(plan, sh, processes);

    if (!cut->held)
        cut->held = calloc((size_t)plan->layout.stages, sizeof *cut->held);
    if (!cut->held)
        return NULL;
    if (cut->held_key != key && count(plan, sh, processes, cut->held))
        return NULL;
    cut->held_key = key;
    return cut->held;
}

/* ---- what shared slices exchange -------------------------------------------------------------- */

/* Backward, of the queries of all other parts q, o, do, lse and what becomes dq, and as many dq of its own as there are
 * others, with room for a few sizes. */
static int64_t exchanged_elements(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    const struct sp_layout *lay = &plan->layout;
    int64_t most = 0;

    for (int g = 0; g < lay->stages; g++)
        for (int k = 0; k < lay->slices; k++) {
            int first, last, at, len, whole;
            struct sp_op op = {.chunk = g};
            int64_t elements, others;

            sp_slice_stages(lay, g, k, &first, &last);
            if (first == last || stage < first || stage > last)
                continue;
            others = last - first;
            op.slice = (unsigned short)(sp_first_part(lay, g, k) + stage - first);
            sp_plan_op_tokens(plan, sh->seq, &op, &at, &len);
            sp_plan_slice_tokens(plan, sh->seq, k, &at, &whole);
            elements =
                (4 * (int64_t)(whole - len) + 2 * others * len) * sh->batch * sh->q_width +
                sp_in_f32(sh, (2 * (int64_t)whole + others * len) * sh->batch * sh->model.heads);
            most = elements > most ? elements : most;
        }
    return most;
}

int64_t sp_multiplexed_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                  int64_t x)
{
    (void)x; /* rows that cross are counted with what is held for others */
    return exchanged_elements(plan, sh, stage);
}

int64_t sp_multiplexed_for_others(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    const int64_t *bytes = counted(plan, sh);
    int64_t elem = (int64_t)sp_shape_elem(sh);
    int64_t tied = sh->model.tied ? (int64_t)sp_block_elements(&sh->held, SP_BLOCK_TOKENS) : 0;

    if (!bytes)
        return INT64_MAX / 16; /* no memory to count it: it fits nowhere */
    /* two replicas of a table are summed like others */
    return (bytes[stage] + (int64_t)sizeof(float) * tied + elem - 1) / elem;
}
