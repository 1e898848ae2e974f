/*
 * The tasks of one transformer layer, for any StarPU program: what the trainer itself runs, over data
 * handles of the program's own. Each function below submits one task.
 *
 *   pre        n1 = norm1(x)        q = n1 Wq^T + bq        k, v = n1 Wkv^T + bkv
 *   attention  o = softmax(q k^T / sqrt(d) + causal) v
 *   post       r = x + o Wo^T + bo  n2 = norm2(r)  u = n2 Wup^T + bup  y = r + act(u) Wdown^T + bdown
 *
 *   GPT-2 style  LayerNorm, act is GELU (tanh), biases
 *   Llama style  RMSNorm, rotary positions on q and k, act(gate, up) = silu(gate) up, no biases
 *
 * b sequences of s tokens make T = b s rows, sequence by sequence; h hidden, a heads of queries, g of
 * keys and values, d the size of a head, f the width of the MLP, up = f, or 2f in Llama style. Tensors
 * are dense and row-major, weights are [out, in].
 *
 * The tasks run on CPU workers under any scheduler, each with the OpenMP team of its worker
 * (OMP_NUM_THREADS: the threads of one). All calls come from one thread. A handle that is missing or too
 * small ends the program with one line on stderr.
 *
 * Example: examples/gpt/layer.c.
 */
#ifndef STARPIPE_LAYER_H
#define STARPIPE_LAYER_H

#include <starpu.h>

#pragma GCC visibility push(default)

enum { SP_LAYER_GPT2, SP_LAYER_LLAMA };             /* style */
enum { SP_LAYER_F32, SP_LAYER_BF16, SP_LAYER_FP8 }; /* dtype; FP8: bf16, products in fp8 */

struct sp_layer_config {
    int style;
    int dtype;           /* of activations, their gradients and the parameters that tasks read */
    int batch, seq;      /* b, s */
    int hidden, mlp;     /* h, f */
    int heads, head_dim; /* a, d; a d = h in GPT-2 style, d even in Llama style */
    int kv_heads;        /* g, divides a; 0: a. GPT-2 style: a */
    float norm_eps;      /* 0: 1e-5 */
    float rope_theta;    /* Llama style; 0: 10000 */
};

struct sp_layer;

/* The sizes of a layer, which any number of layers and micro-batches share. 0; -EINVAL after one line on
 * stderr: no layer has these sizes; -ENOMEM. */
int sp_layer_create(const struct sp_layer_config *config, struct sp_layer **layer);
/* After its last task has ended, before starpu_shutdown. */
void sp_layer_destroy(struct sp_layer *layer);

/*
 * The buffers that tasks work on, as indices into an array of handles. The program registers them
 * as vectors of the sizes below. Elements have the layer's dtype, or f32 where that is said.
 * Micro-batches share the parameters and their gradients; two that are alive at once share no other
 * buffer. Y of a layer is X of the next one, and DX is DY of the one before.
 */
enum sp_layer_buffer {
    /* Parameters, R: three blocks, laid out as enum sp_layer_weight says. */
    SP_LAYER_W_NORM1,
    SP_LAYER_W_QKV,
    SP_LAYER_W_POST,
    /* Their gradients, f32, laid out alike, RW: added to (+=), so the program clears them. */
    SP_LAYER_G_NORM1,
    SP_LAYER_G_QKV,
    SP_LAYER_G_POST,
    /* Written (=) by forward tasks, for backward tasks too. */
    SP_LAYER_X,    /* (T,h), written by the program */
    SP_LAYER_PRE,  /* n1(T,h) and statistics f32 (T,2) */
    SP_LAYER_Q,    /* (T,a d) */
    SP_LAYER_KV,   /* (T,2 g d): in each row the keys, then the values */
    SP_LAYER_O,    /* (T,a d) */
    SP_LAYER_LSE,  /* f32 (b,a,s): log of the sum of e^score */
    SP_LAYER_POST, /* r(T,h) u(T,up) n2(T,h) act(u)(T,f) and statistics f32 (T,2) */
    SP_LAYER_Y,    /* (T,h) */
    /* Written (=) by backward tasks: gradients by X, Q, KV, O, Y, and by u and r above. */
    SP_LAYER_DY, /* written by the program */
    SP_LAYER_DU, /* (T,up) */
    SP_LAYER_DR, /* (T,h) */
    SP_LAYER_DO,
    SP_LAYER_DQ,
    SP_LAYER_DKV,
    SP_LAYER_DX,
    SP_LAYER_BUFFERS
};

/* Elements of a buffer, and bytes of one, as starpu_vector_data_register takes them. */
size_t sp_layer_elements(const struct sp_layer *layer, enum sp_layer_buffer buffer);
size_t sp_layer_element_bytes(const struct sp_layer *layer, enum sp_layer_buffer buffer);

/* The tensors in the blocks of parameters, in this order; what lies between them is not used. */
enum sp_layer_weight {
    SP_LAYER_NORM1_GAIN, /* in NORM1: (h) */
    SP_LAYER_NORM1_BIAS, /* (h), GPT-2 style */
    SP_LAYER_QKV,        /* in QKV: (a d + 2 g d, h), rows of queries, keys, values */
    SP_LAYER_QKV_BIAS,   /* (a d + 2 g d), GPT-2 style */
    SP_LAYER_OUT,        /* in POST: (h, a d) */
    SP_LAYER_OUT_BIAS,   /* (h), GPT-2 style */
    SP_LAYER_NORM2_GAIN, /* (h) */
    SP_LAYER_NORM2_BIAS, /* (h), GPT-2 style */
    SP_LAYER_UP,         /* (up, h); Llama style: f rows of the gate, f of up */
    SP_LAYER_UP_BIAS,    /* (up), GPT-2 style */
    SP_LAYER_DOWN,       /* (h, f) */
    SP_LAYER_DOWN_BIAS,  /* (h), GPT-2 style */
    SP_LAYER_WEIGHTS
};

/* Elements before a tensor in its block; (size_t)-1: the style has none such. */
size_t sp_layer_offset(const struct sp_layer *layer, enum sp_layer_weight weight);

/* The worker that runs a task, and the position in its program: starpu_task::workerids and
 * workerorder, as order.h describes them. Positions have no holes, and no task may depend on a
 * later position of its worker. */
struct sp_layer_position {
    int worker;
    unsigned order; /* from 1 on; 0: it has none */
};

/*
 * `t` holds the handles of a micro-batch, indexed by enum sp_layer_buffer. A task looks only at
 * those that it reads or writes. `at` NULL: any CPU worker runs the task once its data are there.
 * Submit tasks in an order in which they could run one by one; StarPU derives their dependencies
 * from it.
 */

/* Forward. Reads X, W_NORM1, W_QKV; writes PRE, Q, KV. */
void sp_layer_pre_fwd_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                             const struct sp_layer_position *at);
/* Reads Q, KV; writes O, LSE. */
void sp_layer_attn_fwd_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at);
/* Reads X, O, W_POST; writes POST, Y. */
void sp_layer_post_fwd_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at);

/* Backward. du = act'(u) (dy Wdown), dr = dy + norm2'(du Wup), do = dr Wo; gain and bias of norm2 += .
 * Reads DY, POST, W_POST; writes DU, DR, DO; adds to G_POST. */
void sp_layer_post_bwd_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at);
/* dv = P^T do, ds = P o (do v^T - rowsum(do o o)), dq = ds k / sqrt(d), dk = ds^T q / sqrt(d), P = e^(score - lse).
 * Reads Q, KV, O, LSE, DO; writes DQ, DKV. */
void sp_layer_attn_bwd_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                              const struct sp_layer_position *at);
/* dx = dr + norm1'(dq Wq + dkv Wkv); gain and bias of norm1 += . Reads X, PRE, DR, W_NORM1, W_QKV; writes DX; adds to
 * G_NORM1; DQ and DKV are RW: rotated back in Llama style. */
void sp_layer_pre_bwd_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                             const struct sp_layer_position *at);

/* Gradients of products, at any time after the backward task. dWo += dr^T o, dWup += du^T n2, dWdown += dy^T act(u), and
 * biases. Reads O, POST, DY, DU, DR; adds to G_POST. */
void sp_layer_post_wgrad_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                                const struct sp_layer_position *at);
/* dWq += dq^T n1, dWkv += dkv^T n1, and biases. Reads PRE, DQ, DKV; adds to G_QKV. */
void sp_layer_pre_wgrad_insert(const struct sp_layer *layer, const starpu_data_handle_t *t,
                               const struct sp_layer_position *at);

#pragma GCC visibility pop

#endif
