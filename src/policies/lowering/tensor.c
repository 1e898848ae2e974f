#include "policies/lowering/tensor.h"
#include "policies/families/activations.h"
#include "policies/families/ownership.h"
#include "policies/lowering/parking.h"
#include "policies/lowering/pipelines.h"
#include <stdio.h>
#include <string.h>

/* The shape of a kind of tensor. */
enum extent { ROWS_H, ROWS_Q, ROWS_KV, ROWS_HEADS, ROWS_2, STASH, OUT_PRODUCT, CHUNK, ONE_BLOCK };

static const struct {
    const char *name;
    enum extent extent;
    bool gradient; /* of parameters */
} kinds[SP_TENSOR_KINDS] = {
    [SP_TENSOR_X] = {"x", ROWS_H, false},
    [SP_TENSOR_DX] = {"dx", ROWS_H, false},
    [SP_TENSOR_N1] = {"n", ROWS_H, false},
    [SP_TENSOR_DN1] = {"dn", ROWS_H, false},
    [SP_TENSOR_R] = {"r", ROWS_H, false},
    [SP_TENSOR_DR] = {"dr", ROWS_H, false},
    [SP_TENSOR_Q] = {"q", ROWS_Q, false},
    [SP_TENSOR_DQ] = {"dq", ROWS_Q, false},
    [SP_TENSOR_KV] = {"kv", ROWS_KV, false},
    [SP_TENSOR_DKV] = {"dkv", ROWS_KV, false},
    [SP_TENSOR_O] = {"o", ROWS_Q, false},
    [SP_TENSOR_DO] = {"do", ROWS_Q, false},
    [SP_TENSOR_LSE] = {"lse", ROWS_HEADS, false},
    [SP_TENSOR_STATS] = {"stats", ROWS_2, false},
    [SP_TENSOR_HEAD] = {"h", ROWS_H, false},
    [SP_TENSOR_DHEAD] = {"dh", ROWS_H, false},
    [SP_TENSOR_STASH] = {"stash", STASH, false},
    [SP_TENSOR_WOUT] = {"w.out", OUT_PRODUCT, false},
    [SP_TENSOR_DWOUT] = {"dw.out", OUT_PRODUCT, true},
    [SP_TENSOR_W] = {"w", CHUNK, false},
    [SP_TENSOR_WB] = {"wb", CHUNK, false},
    [SP_TENSOR_D] = {"dw", CHUNK, true},
    [SP_TENSOR_BLOCK] = {"w", ONE_BLOCK, false},
    [SP_TENSOR_GRADIENT] = {"dw", ONE_BLOCK, true},
};

static const char *const block_names[SP_BLOCK_KINDS] = {
    [SP_BLOCK_TOKENS] = "tokens", [SP_BLOCK_POSITIONS] = "positions", [SP_BLOCK_NORM1] = "norm1",
    [SP_BLOCK_QKV] = "qkv",       [SP_BLOCK_POST] = "post",           [SP_BLOCK_NORM] = "norm",
    [SP_BLOCK_HEAD] = "head",
};

int sp_attention_kinds(enum sp_pass pass, enum sp_attention_tensors which,
                       enum sp_tensor_kind out[SP_ATTENTION_KINDS])
{
    static const struct {
        int n;
        enum sp_tensor_kind kind[SP_ATTENTION_KINDS];
    } all[][2] = {
        [SP_F] = {[SP_ATTENTION_INPUTS] = {1, {SP_TENSOR_Q}},
                  [SP_ATTENTION_RESULTS] = {2, {SP_TENSOR_O, SP_TENSOR_LSE}}},
        [SP_B] = {
            [SP_ATTENTION_INPUTS] = {4, {SP_TENSOR_Q, SP_TENSOR_DO, SP_TENSOR_O, SP_TENSOR_LSE}},
            [SP_ATTENTION_RESULTS] = {1, {SP_TENSOR_DQ}}}};

    memcpy(out, all[pass][which].kind, sizeof all[pass][which].kind);
    return all[pass][which].n;
}

const char *sp_tensor_name(enum sp_tensor_kind kind)
{
    return kinds[kind].name;
}

/* True for a tensor with only a share of the keys of a slice, or of a part of one. */
static bool is_key_share(const struct sp_plan *plan, const struct sp_tensor_id *t)
{
    return kinds[t->kind].extent == ROWS_KV && plan->family->shared && t->block > 0;
}

char *sp_tensor_print(const struct sp_plan *plan, const struct sp_tensor_id *t, char *text)
{
    char mb[16] = "", block[16] = "", at[16] = "", part[16] = "", slice[16] = "";

    if (t->mb >= 0)
        snprintf(mb, sizeof mb, "%d", t->mb);
    if (kinds[t->kind].extent == ONE_BLOCK)
        snprintf(block, sizeof block, ".%s", block_names[t->block]);
    if (t->kind == SP_TENSOR_STASH && t->block != SP_CHUNK)
        snprintf(part, sizeof part, ".%s", t->block == SP_ATTN ? "attention" : "block");
    if (is_key_share(plan, t))
        snprintf(part, sizeof part, ".of%d", t->block - 1);
    if (t->at >= 0)
        snprintf(at, sizeof at, ".%d", t->at);
    else if (kinds[t->kind].extent == CHUNK)
        snprintf(at, sizeof at, ".ends");
    if (kinds[t->kind].extent <= STASH && plan->layout.slices > 1)
        snprintf(slice, sizeof slice, "s%d", t->slice);
    snprintf(text, SP_TENSOR_TEXT, "%s%s%s%s%s%s", kinds[t->kind].name, mb, block, at, part, slice);
    return text;
}

/* Layers of a chunk or global stage, for weights that travel by chunk and for ops named by it. */
static int layers_of(const struct sp_plan *plan, const struct sp_shape *shape, int at)
{
    int first, count;

    sp_part_layers(plan, shape->model.layers, sp_globals(&plan->layout), at, &first, &count);
    return count;
}

static bool is_of_layers(const struct sp_plan *plan, const struct sp_tensor_id *t)
{
    return kinds[t->kind].extent == ROWS_KV && !plan->family->facts.parts &&
           !plan->family->facts.shares_attention;
}

/* True for tensors by heads that cover all tokens because devices share a layer's parameters: each
 * share of the tokens is a piece of its own. */
static bool is_by_heads(const struct sp_plan *plan, const struct sp_shape *shape,
                        const struct sp_tensor_id *t)
{
    enum extent extent = kinds[t->kind].extent;

    return (plan->family->facts.parts || plan->family->facts.shares_attention) &&
           shape->tensor > 1 && (extent == ROWS_Q || extent == ROWS_KV || extent == ROWS_HEADS);
}

/* The parked activations that a tensor is; NULL: it is another tensor. Evicted ones are named by
 * their layer, and nobody asks for their pieces. */
static const struct sp_parked *parked_by(const struct sp_plan *plan, const struct sp_tensor_id *t)
{
    const struct sp_parking *p = plan->parking;

    return p && t->kind == SP_TENSOR_STASH && t->at < p->globals ? p->of[t->mb * p->globals + t->at]
                                                                 : NULL;
}

/* The pieces of parked activations: how many, bytes of all, and of piece `want`, 0 beyond the last. */
struct parked_pieces {
    int n;
    int64_t all, wanted;
};

static struct parked_pieces parked_pieces(const struct sp_plan *plan, const struct sp_shape *shape,
                                          const struct sp_parked *parked, int want)
{
    struct parked_pieces p = {0};
    int64_t bytes[SP_STASH_TENSORS];
    int first, count;

    sp_part_layers(plan, shape->model.layers, sp_globals(&plan->layout), parked->at, &first,
                   &count);
    for (int i = 0; i < count; i++) {
        sp_parked_layer(plan->parking, parked, shape,
                        sp_layer_recompute(plan, plan->parking->recompute, first + i), i, bytes);
        for (int t = 0; t < SP_STASH_TENSORS; t++) {
            p.wanted = bytes[t] && p.n == want ? bytes[t] : p.wanted;
            p.all += bytes[t];
            p.n += bytes[t] > 0;
        }
    }
    return p;
}

int sp_tensor_pieces(const struct sp_plan *plan, const struct sp_shape *shape,
                     const struct sp_tensor_id *t)
{
    const struct sp_parked *parked = parked_by(plan, t);

    if (!shape)
        return 1;
    if (parked)
        return parked_pieces(plan, shape, parked, -1).n;
    if (kinds[t->kind].extent == CHUNK)
        return t->at < 0 ? SP_BLOCK_KINDS : SP_LAYER_BLOCKS * layers_of(plan, shape, t->at);
    if (is_by_heads(plan, shape, t) || kinds[t->kind].extent == ROWS_2)
        return sp_shape_shares(shape);
    return is_of_layers(plan, t) ? layers_of(plan, shape, t->at) : 1;
}

static int64_t tokens_of(const struct sp_plan *plan, const struct sp_shape *shape,
                         const struct sp_tensor_id *t)
{
    struct sp_op op = {.slice = t->slice, .mb = t->mb, .chunk = t->at};
    int first, len;

    if (is_key_share(plan, t))
        plan->family->shared->key_share(plan, shape->seq, t->at, t->slice, t->block - 1, &first,
                                        &len);
    else
        sp_plan_op_tokens(plan, shape->seq, &op, &first, &len);
    return (int64_t)len * shape->batch;
}

static int64_t rows_of(const struct sp_plan *plan, const struct sp_shape *shape,
                       const struct sp_tensor_id *t)
{
    return tokens_of(plan, shape, t) / sp_shape_spread(shape);
}

/* Elements of keys and values. Stripes are joined for attention, so a share may begin at any token. */
static int64_t key_elements(const struct sp_plan *plan, const struct sp_shape *shape,
                            const struct sp_tensor_id *t)
{
    struct sp_shape heads;

    if (shape->stride == 1)
        return rows_of(plan, shape, t) * shape->kv_width;
    sp_shape_heads(shape, &heads);
    return tokens_of(plan, shape, t) / shape->ring * heads.kv_width;
}

/* Elements of block i of a chunk's layer, or of the ends of the model; there i is the kind. */
static size_t block_elements(const struct sp_model *m, int at, int i)
{
    enum sp_block_kind kind = at < 0 ? (enum sp_block_kind)i : sp_layer_block(i);

    if (at < 0 && sp_block_is_of_layer(kind))
        return 0;
    return sp_block_elements(m, kind);
}

bool sp_rounds_gradients(const struct sp_plan *plan, const struct sp_shape *shape)
{
    return plan->map && plan->map->rounds_gradients && shape && shape->dtype != SP_F32;
}

static size_t elem_of(const struct sp_plan *plan, const struct sp_shape *shape,
                      const struct sp_tensor_id *t)
{
    bool gradient = kinds[t->kind].gradient &&
                    (t->kind != SP_TENSOR_D || t->at < 0 || !sp_rounds_gradients(plan, shape));
    enum extent extent = kinds[t->kind].extent;
    bool wide = gradient || extent == ROWS_HEADS || extent == ROWS_2;

    return wide ? sizeof(float) : sp_shape_elem(shape);
}

struct sp_tensor_block sp_tensor_block(const struct sp_plan *plan, const struct sp_shape *shape,
                                       const struct sp_tensor_id *t, int i)
{
    struct sp_tensor_block b = {.layer = t->at, .gradient = kinds[t->kind].gradient};
    int count;

    if (kinds[t->kind].extent == OUT_PRODUCT) {
        b.kind = SP_BLOCK_POST;
    } else if (kinds[t->kind].extent == ONE_BLOCK) {
        b.kind = (enum sp_block_kind)t->block;
    } else if (t->at < 0) {
        b.kind = (enum sp_block_kind)i;
    } else {
        sp_part_layers(plan, shape->model.layers, sp_globals(&plan->layout), t->at, &b.layer,
                       &count);
        b.layer += i / SP_LAYER_BLOCKS;
        b.kind = sp_layer_block(i);
    }
    return b;
}

static int64_t chunk_elements(const struct sp_plan *plan, const struct sp_shape *shape, int at)
{
    int blocks = at < 0 ? SP_BLOCK_KINDS : SP_LAYER_BLOCKS;
    int64_t sum = 0;

    for (int i = 0; i < blocks; i++)
        sum += (int64_t)block_elements(&shape->held, at, i);
    return at < 0 ? sum : layers_of(plan, shape, at) * sum;
}

/* A pipeline sends other stages what it keeps of a layer's block. */
static int64_t one_block(const struct sp_shape *shape, const struct sp_tensor_id *t)
{
    bool shards = (kinds[t->kind].gradient ? sp_shape_shards_gradients
                                           : sp_shape_shards_weights)(shape, t->at);
    uint64_t n = sp_block_elements(&shape->held, (enum sp_block_kind)t->block), first;

    if (shards)
        sp_pipelines_part(n, shape->replica, shape->pipelines, &first, &n);
    return (int64_t)n;
}

static int64_t elements(const struct sp_plan *plan, const struct sp_shape *shape,
                        const struct sp_tensor_id *t)
{
    switch (kinds[t->kind].extent) {
    case ROWS_H:
        return rows_of(plan, shape, t) * shape->model.hidden;
    case ROWS_Q:
        return rows_of(plan, shape, t) * shape->q_width;
    case ROWS_KV:
        return key_elements(plan, shape, t) *
               (is_of_layers(plan, t) ? layers_of(plan, shape, t->at) : 1);
    case ROWS_HEADS:
        return rows_of(plan, shape, t) * (shape->q_width / shape->model.head_dim);
    case ROWS_2:
        return 2 * rows_of(plan, shape, t) * sp_shape_shares(shape);
    case OUT_PRODUCT:
        return (int64_t)sp_block_offset(&shape->held, SP_BLOCK_POST, SP_ROLE_GAIN);
    case CHUNK:
        return chunk_elements(plan, shape, t->at);
    case STASH: /* an eviction says how much of it leaves */
        return 0;
    default:
        return one_block(shape, t);
    }
}

size_t sp_tensor_piece(const struct sp_plan *plan, const struct sp_shape *shape,
                       const struct sp_tensor_id *t, int i, size_t *elem_bytes)
{
    const struct sp_parked *parked = parked_by(plan, t);

    *elem_bytes = elem_of(plan, shape, t);
    if (parked)
        return (size_t)parked_pieces(plan, shape, parked, i).wanted / *elem_bytes;
    if (kinds[t->kind].extent == CHUNK)
        return block_elements(&shape->held, t->at, i);
    return (size_t)(elements(plan, shape, t) / sp_tensor_pieces(plan, shape, t));
}

int64_t sp_tensor_bytes(const struct sp_plan *plan, const struct sp_shape *shape,
                        const struct sp_tensor_id *t)
{
    const struct sp_parked *parked = parked_by(plan, t);

    if (!shape)
        return 0;
    return parked ? parked_pieces(plan, shape, parked, -1).all
                  : (int64_t)elem_of(plan, shape, t) * elements(plan, shape, t);
}
