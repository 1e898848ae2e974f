#include "model/tensor_table.h"

#define ROW(BLOCK, ROLE, ROWS, COLS, GPT2, LLAMA, WHEN, INIT, DECAY)                               \
    {                                                                                              \
        SP_BLOCK_##BLOCK, SP_ROLE_##ROLE, SP_DIM_##ROWS, SP_DIM_##COLS, GPT2, LLAMA, SP_##WHEN,    \
            SP_INIT_##INIT, DECAY                                                                  \
    }
#define MATRIX(BLOCK, ROLE, ROWS, COLS, GPT2, LLAMA, WHEN)                                         \
    ROW(BLOCK, ROLE, ROWS, COLS, GPT2, LLAMA, WHEN, NORMAL, true)
#define GAIN(BLOCK, ROLE, SIZE, GPT2, LLAMA, WHEN)                                                 \
    ROW(BLOCK, ROLE, ONE, SIZE, GPT2, LLAMA, WHEN, ONE, false)
#define BIAS(BLOCK, ROLE, SIZE, GPT2, LLAMA, WHEN)                                                 \
    ROW(BLOCK, ROLE, ONE, SIZE, GPT2, LLAMA, WHEN, ZERO, false)

/* Tensors of one block follow each other, and of one role (query, key, value; gate, up): one matrix to the kernels. */
const struct sp_tensor_row sp_tensor_table[] = {
    MATRIX(TOKENS, TABLE, VOCAB, HIDDEN, "transformer.wte.weight", "model.embed_tokens.weight",
           ALWAYS),
    MATRIX(POSITIONS, TABLE, POSITIONS, HIDDEN, "transformer.wpe.weight", NULL, ALWAYS),

    GAIN(NORM1, GAIN, HIDDEN, "ln_1.weight", "input_layernorm.weight", ALWAYS),
    BIAS(NORM1, BIAS, HIDDEN, "ln_1.bias", NULL, ALWAYS),

    MATRIX(QKV, QKV, QKV, HIDDEN, "attn.c_attn.weight", NULL, ALWAYS),
    MATRIX(QKV, QKV, Q, HIDDEN, NULL, "self_attn.q_proj.weight", ALWAYS),
    MATRIX(QKV, QKV, KV, HIDDEN, NULL, "self_attn.k_proj.weight", ALWAYS),
    MATRIX(QKV, QKV, KV, HIDDEN, NULL, "self_attn.v_proj.weight", ALWAYS),
    BIAS(QKV, QKV_BIAS, QKV, "attn.c_attn.bias", NULL, ALWAYS),
    BIAS(QKV, QKV_BIAS, Q, NULL, "self_attn.q_proj.bias", WHEN_QKV_BIAS),
    BIAS(QKV, QKV_BIAS, KV, NULL, "self_attn.k_proj.bias", WHEN_QKV_BIAS),
    BIAS(QKV, QKV_BIAS, KV, NULL, "self_attn.v_proj.bias", WHEN_QKV_BIAS),
    GAIN(QKV, Q_GAIN, HEAD, NULL, "self_attn.q_norm.weight", WHEN_QK_NORM),
    GAIN(QKV, K_GAIN, HEAD, NULL, "self_attn.k_norm.weight", WHEN_QK_NORM),

    MATRIX(POST, OUT, HIDDEN, Q, "attn.c_proj.weight", "self_attn.o_proj.weight", ALWAYS),
    BIAS(POST, OUT_BIAS, HIDDEN, "attn.c_proj.bias", "self_attn.o_proj.bias", WHEN_OUT_BIAS),
    GAIN(POST, GAIN, HIDDEN, "ln_2.weight", "post_attention_layernorm.weight", ALWAYS),
    BIAS(POST, BIAS, HIDDEN, "ln_2.bias", NULL, ALWAYS),
    MATRIX(POST, UP, MLP, HIDDEN, "mlp.c_fc.weight", "mlp.gate_proj.weight", ALWAYS),
    MATRIX(POST, UP, MLP, HIDDEN, NULL, "mlp.up_proj.weight", ALWAYS),
    BIAS(POST, UP_BIAS, MLP, "mlp.c_fc.bias", "mlp.gate_proj.bias", WHEN_MLP_BIAS),
    BIAS(POST, UP_BIAS, MLP, NULL, "mlp.up_proj.bias", WHEN_MLP_BIAS),
    MATRIX(POST, DOWN, HIDDEN, MLP, "mlp.c_proj.weight", "mlp.down_proj.weight", ALWAYS),
    BIAS(POST, DOWN_BIAS, HIDDEN, "mlp.c_proj.bias", "mlp.down_proj.bias", WHEN_MLP_BIAS),

    GAIN(NORM, GAIN, HIDDEN, "transformer.ln_f.weight", "model.norm.weight", ALWAYS),
    BIAS(NORM, BIAS, HIDDEN, "transformer.ln_f.bias", NULL, ALWAYS),
    MATRIX(HEAD, TABLE, VOCAB, HIDDEN, "lm_head.weight", "lm_head.weight", WHEN_UNTIED),
};

const int sp_tensor_rows = sizeof sp_tensor_table / sizeof *sp_tensor_table;

static bool meets(const struct sp_model *m, enum sp_when when)
{
    bool gpt2 = m->arch == SP_ARCH_GPT2; /* it has all biases */
    const bool met[] = {
        [SP_ALWAYS] = true,
        [SP_WHEN_UNTIED] = !m->tied,
        [SP_WHEN_QKV_BIAS] = gpt2 || m->qkv_bias,
        [SP_WHEN_OUT_BIAS] = gpt2 || m->out_bias,
        [SP_WHEN_MLP_BIAS] = gpt2 || m->mlp_bias,
        [SP_WHEN_QK_NORM] = m->qk_norm,
    };

    return met[when];
}

const char *sp_row_name(const struct sp_model *m, const struct sp_tensor_row *row)
{
    if (!meets(m, row->when))
        return NULL;
    return m->arch == SP_ARCH_GPT2 ? row->gpt2 : row->llama;
}

int sp_dim(const struct sp_model *m, enum sp_dim dim)
{
    const int sizes[] = {
        [SP_DIM_ONE] = 1,
        [SP_DIM_HIDDEN] = m->hidden,
        [SP_DIM_Q] = sp_model_q_width(m),
        [SP_DIM_KV] = m->kv_heads * m->head_dim,
        [SP_DIM_HEAD] = m->head_dim,
        [SP_DIM_QKV] = sp_model_q_width(m) + sp_model_kv_width(m),
        [SP_DIM_MLP] = m->mlp,
        [SP_DIM_VOCAB] = m->vocab,
        [SP_DIM_POSITIONS] = m->positions,
    };

    return sizes[dim];
}
