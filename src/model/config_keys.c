/*
 * Values of a config.json, and the other keys that it may have besides those that config.c reads:
 * keys that relatives of GPT-2 and Llama have (Gemma, Granite, MoE models, ...) and that fine-tuned
 * copies inherit.
 */
#include "model/config_keys.h"
#include "model/try.h"
#include "sp_error.h"
#include <limits.h>
#include <math.h>
#include <string.h>

const char *sp_config_show(const json_t *v, char out[64])
{
    static const char *const type_names[] = {[JSON_OBJECT] = "an object",
                                             [JSON_ARRAY] = "a list",
                                             [JSON_TRUE] = "true",
                                             [JSON_FALSE] = "false",
                                             [JSON_NULL] = "null"};

    if (json_is_string(v)) {
        snprintf(out, 64, "'%.48s'", json_string_value(v));
    } else if (json_is_integer(v)) {
        snprintf(out, 64, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) {
        snprintf(out, 64, "%g", json_real_value(v));
    } else {
        snprintf(out, 64, "%s", type_names[json_typeof(v)]);
    }
    return out;
}

const json_t *sp_config_member(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_null(v) ? NULL : v;
}

int sp_config_size(const struct sp_config *c, const json_t *obj, const char *key, int fallback,
                   int *out)
{
    const json_t *v = sp_config_member(obj, key);
    char text[64];

    if (!v && fallback) {
        *out = fallback;
        return 0;
    }
    if (!v)
        return sp_error(EINVAL, "%s: %s is missing", c->where, key);
    if (!json_is_integer(v))
        return sp_error(EINVAL, "%s: %s is %s, it must be an integer", c->where, key,
                        sp_config_show(v, text));
    if (json_integer_value(v) < 1 || json_integer_value(v) > INT_MAX)
        return sp_error(EINVAL, "%s: %s is %s, it must be between 1 and %d", c->where, key,
                        sp_config_show(v, text), INT_MAX);
    *out = (int)json_integer_value(v);
    return 0;
}

int sp_config_real(const struct sp_config *c, const json_t *obj, const char *key, double fallback,
                   float *out)
{
    const json_t *v = sp_config_member(obj, key);
    char text[64];

    if (v && !json_is_number(v))
        return sp_error(EINVAL, "%s: %s is %s, it must be a number", c->where, key,
                        sp_config_show(v, text));
    *out = (float)(v ? json_number_value(v) : fallback);
    return 0;
}

int sp_config_bool(const struct sp_config *c, const char *key, bool fallback, bool *out)
{
    const json_t *v = sp_config_member(c->root, key);
    char text[64];

    if (v && !json_is_boolean(v))
        return sp_error(EINVAL, "%s: %s is %s, it must be true or false", c->where, key,
                        sp_config_show(v, text));
    *out = v ? json_is_true(v) : fallback;
    return 0;
}

/* ---- keys of others ---------------------------------------------------------------------- */

/* The harmless values besides null. OFF: false, 0, an empty list or object; ONE: 1; TRUE: true. */
enum off { OFF, ONE, TRUE };

static const struct {
    const char *key;
    enum off off; /* the value that changes nothing */
} others[] = {
    {"quantization_config", OFF},
    {"compression_config", OFF},
    {"pruned_heads", OFF},
    {"per_layer_config", OFF},
    {"is_encoder_decoder", OFF},
    {"is_causal", TRUE},
    {"pretraining_tp", ONE},
    /* attention */
    {"use_sliding_window", OFF},
    {"attention_chunk_size", OFF},
    {"attn_logit_softcapping", OFF},
    {"final_logit_softcapping", OFF},
    {"query_pre_attn_scalar", OFF},
    {"attention_multiplier", OFF},
    {"clip_qkv", OFF},
    {"qkv_bias", OFF},
    {"attention_out_bias", OFF},
    {"qk_norm", OFF},
    {"use_qk_norm", OFF},
    {"qk_layernorm", OFF},
    {"multi_query", OFF},
    {"q_lora_rank", OFF},
    {"kv_lora_rank", OFF},
    /* positions */
    {"alibi", OFF},
    {"use_alibi", OFF},
    {"rope_interleaved", OFF},
    {"partial_rotary_factor", ONE},
    {"rotary_pct", ONE},
    {"no_rope_layers", OFF},
    /* layers */
    {"parallel_attn", OFF},
    {"use_parallel_residual", OFF},
    {"num_local_experts", OFF},
    {"num_experts", OFF},
    {"n_routed_experts", OFF},
    {"mlp_only_layers", OFF},
    {"embedding_multiplier", ONE},
    {"residual_multiplier", ONE},
    {"logits_scaling", ONE},
    {"logit_scale", ONE},
    {"scale_emb", ONE},
    {"scale_depth", OFF},
    {"dim_model_base", OFF},
};

static bool is_off(const json_t *v, enum off off)
{
    switch (off) {
    case ONE:
        return json_is_number(v) && json_number_value(v) == 1;
    case TRUE:
        return json_is_true(v);
    case OFF:
        break;
    }
    return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static int check_others(const json_t *root, const char *where)
{
    static const char *const only[] = {[OFF] = "null", [ONE] = "1", [TRUE] = "true"};
    char text[64];

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const json_t *v = json_object_get(root, others[i].key);

        if (v && !json_is_null(v) && !is_off(v, others[i].off))
            return sp_error(EINVAL, "%s: %s is %s, only %s is supported", where, others[i].key,
                            sp_config_show(v, text), only[others[i].off]);
    }
    return 0;
}

/* A window that is not switched off and is shorter than the longest sequence. Mistral's is read:
 * sequences are compared with it. */
static int check_window(const json_t *root, const char *where, const struct sp_model *m)
{
    const json_t *v = json_object_get(root, "sliding_window");
    char text[64];

    const json_t *use = json_object_get(root, "use_sliding_window");
    bool qwen = m->relative == SP_QWEN2 || m->relative == SP_QWEN3; /* not used unless said so */

    if (!v || json_is_null(v) || json_is_false(use) || (qwen && !use) ||
        m->relative == SP_MISTRAL || (json_is_integer(v) && json_integer_value(v) >= m->positions))
        return 0;
    return sp_error(EINVAL, "%s: sliding_window is %s, only null is supported", where,
                    sp_config_show(v, text));
}

/* transformers may say of each layer what it is. */
static int check_layer_types(const json_t *root, const char *where)
{
    const json_t *types = json_object_get(root, "layer_types"), *v;
    char text[64];
    size_t i;

    if (!types || json_is_null(types))
        return 0;
    if (!json_is_array(types))
        return sp_error(EINVAL, "%s: layer_types is %s, it must be a list", where,
                        sp_config_show(types, text));
    json_array_foreach(types, i, v)
    {
        if (!json_is_string(v) || strcmp(json_string_value(v), "full_attention"))
            return sp_error(EINVAL,
                            "%s: layer %zu in layer_types is %s, only full_attention is "
                            "supported",
                            where, i, sp_config_show(v, text));
    }
    return 0;
}

/* Code that comes with the model in the place of transformers' own. */
static int check_code(const json_t *root, const char *where)
{
    const json_t *code = json_object_get(json_object_get(root, "auto_map"), "AutoModelForCausalLM");
    char text[64];

    if (!code || json_is_null(code))
        return 0;
    return sp_error(EINVAL,
                    "%s: auto_map names code of its own for the model, %s, which is not run", where,
                    sp_config_show(code, text));
}

/* ---- a value under another name ----------------------------------------------------------- */

/* One of `keys` that is there must be `value`, to the last digit of a float. */
static int agree(const json_t *root, const char *where, const char *name, double value,
                 const char *const *keys)
{
    char text[64];

    for (; *keys; keys++) {
        const json_t *v = json_object_get(root, *keys);

        if (!v || json_is_null(v))
            continue;
        if (!json_is_number(v) || (float)json_number_value(v) != (float)value)
            return sp_error(EINVAL, "%s: %s is %s, but %s is %g", where, *keys,
                            sp_config_show(v, text), name, value);
    }
    return 0;
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int check_names(const json_t *root, const char *where, const struct sp_model *m)
{
    const struct {
        enum sp_arch arch;
        const char *name;
        double value;
        const char *const *keys;
    } values[] = {
        {SP_ARCH_GPT2, "n_embd", m->hidden, KEYS("hidden_size")},
        {SP_ARCH_GPT2, "n_head", m->heads, KEYS("num_attention_heads", "num_key_value_heads")},
        {SP_ARCH_GPT2, "n_layer", m->layers, KEYS("num_hidden_layers")},
        {SP_ARCH_GPT2, "n_positions", m->positions, KEYS("max_position_embeddings", "n_ctx")},
        {SP_ARCH_GPT2, "n_inner", m->mlp, KEYS("intermediate_size")},
        {SP_ARCH_GPT2, "n_embd / n_head", m->head_dim, KEYS("head_dim")},
        {SP_ARCH_GPT2, "layer_norm_epsilon", m->norm_eps,
         KEYS("layer_norm_eps", "layernorm_epsilon", "norm_epsilon", "norm_eps", "rms_norm_eps")},
        {SP_ARCH_LLAMA, "rms_norm_eps", m->norm_eps,
         KEYS("rms_norm_epsilon", "layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon",
              "norm_epsilon", "norm_eps")},
        {SP_ARCH_LLAMA, "rope_theta", m->rope.theta,
         KEYS("rotary_emb_base", "rope_base", "rotary_base")},
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].arch == m->arch)
            SP_TRY(agree(root, where, values[i].name, values[i].value, values[i].keys));
    return 0;
}

int sp_config_check_keys(const json_t *root, const char *where, const struct sp_model *m)
{
    SP_TRY(check_others(root, where));
    SP_TRY(check_window(root, where, m));
    SP_TRY(check_layer_types(root, where));
    SP_TRY(check_code(root, where));
    return check_names(root, where, m);
}
