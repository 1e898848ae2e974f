#include "model/model_types.h"

const struct sp_model_type sp_model_types[] = {
    {.name = "gpt2", .architecture = "GPT2LMHeadModel", .arch = SP_ARCH_GPT2},
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .arch = SP_ARCH_LLAMA,
     .relative = SP_LLAMA,
     .says_attention_bias = true,
     .says_mlp_bias = true},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .arch = SP_ARCH_LLAMA,
     .relative = SP_MISTRAL,
     .window = 4096},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .arch = SP_ARCH_LLAMA,
     .relative = SP_QWEN2,
     .qkv_bias = true},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .arch = SP_ARCH_LLAMA,
     .relative = SP_QWEN3,
     .says_attention_bias = true,
     .qk_norm = true,
     .head_dim = 128},
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
