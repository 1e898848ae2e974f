#include "model/model_types.h"

/* As transformers has them. */
const struct sp_activation_name sp_activation_names[] = {
    {"", SP_ACTIVATIONS},
    {"gelu_new", SP_GELU_TANH},
    {"gelu_pytorch_tanh", SP_GELU_TANH},
    {"gelu_fast", SP_GELU_TANH},
    {"gelu_accurate", SP_GELU_TANH},
    {"gelu", SP_GELU},
    {"gelu_python", SP_GELU},
    {"quick_gelu", SP_GELU_QUICK},
    {"silu", SP_SILU},
    {"swish", SP_SILU},
    {NULL, SP_ACTIVATIONS},
};

const struct sp_model_type sp_model_types[] = {
    {"gpt2", "GPT2LMHeadModel", SP_ARCH_GPT2, .window = 0},
    {"llama", "LlamaForCausalLM", SP_ARCH_LLAMA, SP_LLAMA, .says_attention_bias = true,
     .says_mlp_bias = true},
    {"mistral", "MistralForCausalLM", SP_ARCH_LLAMA, SP_MISTRAL, .window = 4096},
    {"qwen2", "Qwen2ForCausalLM", SP_ARCH_LLAMA, SP_QWEN2, .qkv_bias = true},
    {"qwen3", "Qwen3ForCausalLM", SP_ARCH_LLAMA, SP_QWEN3, .says_attention_bias = true,
     .qk_norm = true, .head_dim = 128},
};

const int sp_model_n_types = sizeof sp_model_types / sizeof *sp_model_types;

const struct sp_model_type *sp_model_type_of(const struct sp_model *m)
{
    for (int i = 0; i < sp_model_n_types; i++) {
        const struct sp_model_type *t = &sp_model_types[i];

        if (t->arch == m->arch && (m->arch == SP_ARCH_GPT2 || t->relative == m->relative))
            return t;
    }
    return NULL;
}

const char *sp_model_type(const struct sp_model *m)
{
    return sp_model_type_of(m)->name;
}
