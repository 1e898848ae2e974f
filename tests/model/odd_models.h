/* Tiny models of both styles, tied and not, with sizes that divide nothing: alignment has work. */
#ifndef TESTS_MODEL_ODD_MODELS_H
#define TESTS_MODEL_ODD_MODELS_H

#include "model/model.h"
#include <stddef.h>
#include <string.h>

#define GPT2_MODEL(NAME, L, H, A, D, F, V, POSITIONS, ...)                                         \
    {                                                                                              \
        .name = NAME, .arch = SP_ARCH_GPT2, .layers = L, .hidden = H, .heads = A, .kv_heads = A,   \
        .head_dim = D, .mlp = F, .vocab = V, .positions = POSITIONS, .norm_eps = 1e-5f,            \
        __VA_ARGS__                                                                                \
    }
#define LLAMA_MODEL(NAME, L, H, A, G, D, F, V, POSITIONS, ...)                                     \
    {                                                                                              \
        .name = NAME, .arch = SP_ARCH_LLAMA, .layers = L, .hidden = H, .heads = A, .kv_heads = G,  \
        .head_dim = D, .mlp = F, .vocab = V, .positions = POSITIONS, .norm_eps = 1e-5f,            \
        .rope.theta = 10000, __VA_ARGS__                                                           \
    }
/* All that relatives of Llama may have. */
#define QWEN_MODEL(NAME, L, H, A, G, D, F, V, POSITIONS)                                           \
    LLAMA_MODEL(NAME, L, H, A, G, D, F, V, POSITIONS, .relative = SP_QWEN3, .qkv_bias = true,      \
                .out_bias = true, .mlp_bias = true, .qk_norm = true)

#define ODD_GPT2 GPT2_MODEL("odd-gpt2", 3, 15, 5, 3, 7, 11, 13, .tied = true)
#define ODD_GPT2_UNTIED GPT2_MODEL("odd-gpt2-untied", 1, 9, 3, 3, 5, 7, 2, .tied = false)
#define ODD_LLAMA LLAMA_MODEL("odd-llama", 2, 7, 6, 3, 2, 5, 11, 13, .tied = false)
#define ODD_LLAMA_TIED LLAMA_MODEL("odd-llama-tied", 2, 5, 2, 1, 6, 3, 9, 13, .tied = true)
#define ODD_QWEN QWEN_MODEL("odd-qwen", 3, 7, 4, 2, 6, 5, 11, 13)

/* The name of the first field of a configuration in which two models differ; NULL: there is none. */
static inline const char *model_difference(const struct sp_model *a, const struct sp_model *b)
{
#define FIELD(f)                                                                                   \
    {                                                                                              \
        .name = #f, .at = offsetof(struct sp_model, f), .size = sizeof a->f                        \
    }
    static const struct {
        const char *name;
        size_t at, size;
    } fields[] = {FIELD(arch),      FIELD(layers),   FIELD(hidden),   FIELD(heads),
                  FIELD(kv_heads),  FIELD(head_dim), FIELD(mlp),      FIELD(vocab),
                  FIELD(positions), FIELD(tied),     FIELD(norm_eps), FIELD(relative),
                  FIELD(rope),      FIELD(qkv_bias), FIELD(out_bias), FIELD(mlp_bias),
                  FIELD(qk_norm),   FIELD(window)};
#undef FIELD

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (memcmp((const char *)a + fields[i].at, (const char *)b + fields[i].at, fields[i].size))
            return fields[i].name;
    return NULL;
}

#endif
