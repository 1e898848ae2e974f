/* Tiny models of both styles, tied and not, with sizes that divide nothing: alignment has work. */
#ifndef TESTS_MODEL_ODD_MODELS_H
#define TESTS_MODEL_ODD_MODELS_H

#include "model/model.h"

#define ODD_GPT2                                                                                   \
    {                                                                                              \
        .name = "odd-gpt2", .arch = SP_ARCH_GPT2, .layers = 3, .hidden = 15, .heads = 5,           \
        .kv_heads = 5, .head_dim = 3, .mlp = 7, .vocab = 11, .positions = 13, .tied = true,        \
        .norm_eps = 1e-5f                                                                          \
    }

#define ODD_GPT2_UNTIED                                                                            \
    {                                                                                              \
        .name = "odd-gpt2-untied", .arch = SP_ARCH_GPT2, .layers = 1, .hidden = 9, .heads = 3,     \
        .kv_heads = 3, .head_dim = 3, .mlp = 5, .vocab = 7, .positions = 2, .norm_eps = 1e-5f      \
    }

#define ODD_LLAMA                                                                                  \
    {                                                                                              \
        .name = "odd-llama", .arch = SP_ARCH_LLAMA, .layers = 2, .hidden = 7, .heads = 6,          \
        .kv_heads = 3, .head_dim = 2, .mlp = 5, .vocab = 11, .positions = 13, .norm_eps = 1e-5f,   \
        .rope.theta = 10000                                                                        \
    }

#define ODD_LLAMA_TIED                                                                             \
    {                                                                                              \
        .name = "odd-llama-tied", .arch = SP_ARCH_LLAMA, .layers = 2, .hidden = 5, .heads = 2,     \
        .kv_heads = 1, .head_dim = 6, .mlp = 3, .vocab = 9, .positions = 13, .tied = true,         \
        .norm_eps = 1e-5f, .rope.theta = 10000                                                     \
    }

/* All that relatives of Llama may have. */
#define ODD_QWEN                                                                                   \
    {                                                                                              \
        .name = "odd-qwen", .arch = SP_ARCH_LLAMA, .layers = 3, .hidden = 7, .heads = 4,           \
        .kv_heads = 2, .head_dim = 6, .mlp = 5, .vocab = 11, .positions = 13, .norm_eps = 1e-5f,   \
        .relative = SP_QWEN3, .rope.theta = 10000, .qkv_bias = true, .out_bias = true,             \
        .mlp_bias = true, .qk_norm = true                                                          \
    }

#endif
