/* The public interface of a layer's codelets: sizes and inserts for programs that have no step, no
 * stage and no meter. */
#include "starpipe/layer.h"
#include "codelets/insert.h"
#include "sinks/starpu/sink.h"
#include "sinks/starpu/tensor.h"
#include "sp_error.h"
#include <errno.h>
#include <stdlib.h>

struct sp_layer {
    struct sp_shape shape;
};

int sp_layer_create(const struct sp_layer_config *config, struct sp_layer **layer)
{
    const struct sp_layer_config *c = config;
    const struct sp_step_size step = {.seq = c->seq, .batch = c->batch, .micro_batches = 1};
    struct sp_model m = {
        .arch = c->style == SP_LAYER_LLAMA ? SP_ARCH_LLAMA : SP_ARCH_GPT2,
        .layers = 1,
        .hidden = c->hidden,
        .heads = c->heads,
        .kv_heads = c->kv_heads ? c->kv_heads : c->heads,
        .head_dim = c->head_dim,
        .mlp = c->mlp,
        .vocab = 1,
        .positions = c->seq,
        .norm_eps = c->norm_eps != 0 ? c->norm_eps : 1e-5f,
        .rope.theta = c->rope_theta != 0 ? c->rope_theta : 10000,
    };
    int err;
    struct sp_layer *l;

    if ((c->style != SP_LAYER_GPT2 && c->style != SP_LAYER_LLAMA) || c->dtype < SP_LAYER_F32 ||
        c->dtype > SP_LAYER_FP8)
        return sp_error(EINVAL, "layer: there is no style %d of dtype %d", c->style, c->dtype);
    if (c->batch < 1 || c->seq < 1)
        return sp_error(EINVAL, "layer: %d sequences of %d tokens: both must be positive", c->batch,
                        c->seq);
    err = sp_model_check(&m, "layer");
    err = err ? err : sp_model_check_step(&m, &step, "layer: ");
    if (err)
        return err;
    l = malloc(sizeof *l);
    if (!l)
        return -ENOMEM;
    sp_shape_init(&l->shape, &m, c->batch, c->seq, 1);
    l->shape.dtype = c->dtype == SP_LAYER_FP8    ? SP_FP8
                     : c->dtype == SP_LAYER_BF16 ? SP_BF16
                                                 : SP_F32;
    *layer = l;
    return 0;
}

void sp_layer_destroy(struct sp_layer *layer)
{
    sp_sink_release_scratch(sp_starpu_sink());
    free(layer);
}

/* ---- sizes ---------------------------------------------------------------------------- */

size_t sp_layer_elements(const struct sp_layer *layer, enum sp_layer_buffer buffer)
{
    const struct sp_shape *sh = &layer->shape;
    size_t T = (size_t)sh->rows;

    switch (buffer) {
    case SP_LAYER_W_NORM1:
    case SP_LAYER_G_NORM1:
        return sp_block_elements(&sh->model, SP_BLOCK_NORM1);
    case SP_LAYER_W_QKV:
    case SP_LAYER_G_QKV:
        return sp_block_elements(&sh->model, SP_BLOCK_QKV);
    case SP_LAYER_W_POST:
    case SP_LAYER_G_POST:
        return sp_block_elements(&sh->model, SP_BLOCK_POST);
    case SP_LAYER_PRE:
        return sp_shape_pre_saved(sh, true);
    case SP_LAYER_POST:
        return sp_shape_post_saved(sh, true);
    case SP_LAYER_LSE:
        return T * (size_t)sh->model.heads;
    case SP_LAYER_X:
    case SP_LAYER_Y:
    case SP_LAYER_DY:
    case SP_LAYER_DR:
    case SP_LAYER_DX:
        return T * (size_t)sh->model.hidden;
    case SP_LAYER_Q:
    case SP_LAYER_O:
    case SP_LAYER_DO:
    case SP_LAYER_DQ:
        return T * (size_t)sh->q_width;
    case SP_LAYER_KV:
    case SP_LAYER_DKV:
        return T * (size_t)sh->kv_width;
    case SP_LAYER_DU:
        return T * (size_t)sh->up_width;
    case SP_LAYER_BUFFERS:
        break;
    }
    return 0;
}

size_t sp_layer_element_bytes(const struct sp_layer *layer, enum sp_layer_buffer buffer)
{
    switch (buffer) {
    case SP_LAYER_G_NORM1:
    case SP_LAYER_G_QKV:
    case SP_LAYER_G_POST:
    case SP_LAYER_LSE:
        return sizeof(float);
    default:
        return sp_shape_elem(&layer->shape);
    }
}

size_t sp_layer_offset(const struct sp_layer *layer, enum sp_layer_weight weight)
{
    static const struct {
        enum sp_block_kind block;
        enum sp_role role;
    } places[SP_LAYER_WEIGHTS] = {
        [SP_LAYER_NORM1_GAIN] = {SP_BLOCK_NORM1, SP_ROLE_GAIN},
        [SP_LAYER_NORM1_BIAS] = {SP_BLOCK_NORM1, SP_ROLE_BIAS},
        [SP_LAYER_QKV] = {SP_BLOCK_QKV, SP_ROLE_QKV},
        [SP_LAYER_QKV_BIAS] = {SP_BLOCK_QKV, SP_ROLE_QKV_BIAS},
        [SP_LAYER_OUT] = {SP_BLOCK_POST, SP_ROLE_OUT},
        [SP_LAYER_OUT_BIAS] = {SP_BLOCK_POST, SP_ROLE_OUT_BIAS},
        [SP_LAYER_NORM2_GAIN] = {SP_BLOCK_POST, SP_ROLE_GAIN},
        [SP_LAYER_NORM2_BIAS] = {SP_BLOCK_POST, SP_ROLE_BIAS},
        [SP_LAYER_UP] = {SP_BLOCK_POST, SP_ROLE_UP},
        [SP_LAYER_UP_BIAS] = {SP_BLOCK_POST, SP_ROLE_UP_BIAS},
        [SP_LAYER_DOWN] = {SP_BLOCK_POST, SP_ROLE_DOWN},
        [SP_LAYER_DOWN_BIAS] = {SP_BLOCK_POST, SP_ROLE_DOWN_BIAS},
    };

    return weight < SP_LAYER_WEIGHTS
               ? sp_block_offset(&layer->shape.model, places[weight].block, places[weight].role)
               : (size_t)-1;
}

/* ---- tasks ---------------------------------------------------------------------------- */

/* The context of a task outside a step. `order` gets the position before the task's own, because
 * sp_task_submit increments it. */
static struct sp_task_context context(const struct sp_layer_position *at, char pass,
                                      unsigned *order)
{
    bool placed = at && at->worker >= 0;

    SP_NEED(!placed || at->worker < (int)starpu_worker_get_count(),
            "layer: there is no worker %d: StarPU has %u", placed ? at->worker : 0,
            starpu_worker_get_count());
    *order = placed ? at->order - 1 : 0;
    return (struct sp_task_context){.sink = sp_starpu_sink(),
                                    .worker = placed ? at->worker : -1,
                                    .order = order,
                                    .op_index = -1,
                                    .pass = pass};
}

#define NAME(buffer) [SP_LAYER_##buffer] = "SP_LAYER_" #buffer
static const char *const names[SP_LAYER_BUFFERS] = {
    NAME(W_NORM1), NAME(W_QKV), NAME(W_POST), NAME(G_NORM1), NAME(G_QKV), NAME(G_POST), NAME(X),
    NAME(PRE),     NAME(Q),     NAME(KV),     NAME(O),       NAME(LSE),   NAME(POST),   NAME(Y),
    NAME(DY),      NAME(DU),    NAME(DR),     NAME(DO),      NAME(DQ),    NAME(DKV),    NAME(DX)};
#undef NAME

/* A tensor on the handle of a buffer, after a check that the buffer is as large as tasks assume. It
 * is valid until the next call for that buffer. */
static struct sp_tensor *take(const struct sp_layer *l, const starpu_data_handle_t *t,
                              enum sp_layer_buffer b)
{
    static struct sp_tensor on[SP_LAYER_BUFFERS];
    size_t needed = sp_layer_elements(l, b) * sp_layer_element_bytes(l, b);

    SP_NEED(t[b], "layer: %s has no handle", names[b]);
    SP_NEED(starpu_data_get_size(t[b]) >= needed, "layer: %s has %zu bytes, it needs %zu", names[b],
            starpu_data_get_size(t[b]), needed);
    on[b] = sp_tensor_on(t[b]);
    return &on[b];
}

static struct sp_pre pre_of(const struct sp_layer *l, const starpu_data_handle_t *t)
{
    return (struct sp_pre){
        .x = take(l, t, SP_LAYER_X), .saved = take(l, t, SP_LAYER_PRE), .keep_outputs = true};
}

void sp_layer_pre_fwd_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                             const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'F', &order);
    struct sp_pre pre = pre_of(l, t);

    pre.q = take(l, t, SP_LAYER_Q);
    pre.kv = take(l, t, SP_LAYER_KV);
    sp_pre_fwd_insert(&ctx, &l->shape, &pre, take(l, t, SP_LAYER_W_NORM1),
                      take(l, t, SP_LAYER_W_QKV), 0);
}

void sp_layer_pre_bwd_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                             const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'B', &order);
    struct sp_pre pre = pre_of(l, t);

    sp_pre_bwd_insert(&ctx, &l->shape, &pre, take(l, t, SP_LAYER_W_NORM1),
                      take(l, t, SP_LAYER_W_QKV), take(l, t, SP_LAYER_G_NORM1), NULL, false,
                      take(l, t, SP_LAYER_DQ), take(l, t, SP_LAYER_DKV), take(l, t, SP_LAYER_DR),
                      take(l, t, SP_LAYER_DX));
}

void sp_layer_pre_wgrad_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                               const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'W', &order);
    struct sp_pre pre = {.saved = take(l, t, SP_LAYER_PRE), .keep_outputs = true};

    sp_pre_wgrad_insert(&ctx, &l->shape, &pre, NULL, take(l, t, SP_LAYER_DQ),
                        take(l, t, SP_LAYER_DKV), take(l, t, SP_LAYER_G_QKV), 0);
}

/* All queries, and all keys in one buffer. */
static struct sp_attn attn_of(const struct sp_layer *l, const starpu_data_handle_t *t,
                              const struct sp_attn_keys *keys)
{
    return (struct sp_attn){.q_len = l->shape.seq,
                            .begins = true,
                            .ends = true,
                            .n_keys = 1,
                            .keys = keys,
                            .q = take(l, t, SP_LAYER_Q),
                            .o = take(l, t, SP_LAYER_O),
                            .lse = take(l, t, SP_LAYER_LSE)};
}

void sp_layer_attn_fwd_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'F', &order);
    struct sp_attn_keys keys = {.len = l->shape.seq, .kv = take(l, t, SP_LAYER_KV)};
    struct sp_attn attn = attn_of(l, t, &keys);

    sp_attn_fwd_insert(&ctx, &l->shape, &attn, 0);
}

void sp_layer_attn_bwd_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'B', &order);
    struct sp_attn_keys keys = {
        .len = l->shape.seq, .kv = take(l, t, SP_LAYER_KV), .dkv = take(l, t, SP_LAYER_DKV)};
    struct sp_attn attn = attn_of(l, t, &keys);

    sp_attn_bwd_insert(&ctx, &l->shape, &attn, true, take(l, t, SP_LAYER_DO),
                       take(l, t, SP_LAYER_DQ), 0);
}

void sp_layer_post_fwd_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'F', &order);
    struct sp_post post = {.x = take(l, t, SP_LAYER_X),
                           .o = take(l, t, SP_LAYER_O),
                           .saved = take(l, t, SP_LAYER_POST),
                           .keep_outputs = true};

    sp_post_fwd_insert(&ctx, &l->shape, &post, take(l, t, SP_LAYER_W_POST), take(l, t, SP_LAYER_Y),
                       0);
}

void sp_layer_post_bwd_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'B', &order);
    struct sp_post post = {.saved = take(l, t, SP_LAYER_POST), .keep_outputs = true};

    sp_post_bwd_insert(&ctx, &l->shape, &post, take(l, t, SP_LAYER_W_POST),
                       take(l, t, SP_LAYER_G_POST), false, take(l, t, SP_LAYER_DY),
                       take(l, t, SP_LAYER_DU), take(l, t, SP_LAYER_DR), take(l, t, SP_LAYER_DO));
}

void sp_layer_post_wgrad_insert(const struct sp_layer *l, const starpu_data_handle_t *t,
                                const struct sp_layer_position *at)
{
    unsigned order;
    struct sp_task_context ctx = context(at, 'W', &order);
    struct sp_post post = {
        .o = take(l, t, SP_LAYER_O), .saved = take(l, t, SP_LAYER_POST), .keep_outputs = true};

    sp_post_wgrad_insert(&ctx, &l->shape, &post, NULL, take(l, t, SP_LAYER_G_POST),
                         take(l, t, SP_LAYER_DY), take(l, t, SP_LAYER_DU), take(l, t, SP_LAYER_DR),
                         0);
}
