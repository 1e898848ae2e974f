/*
 * Values of a config.json, and the other keys that it may have besides those that config.c reads:
 * keys that relatives of GPT-2 and Llama have (Gemma, Granite, MoE models, ...) and that fine-tuned
 * copies inherit.
 */
#include "model/config_keys.h"
#include "model/try.h"
#include "sp_error.h"
#include <limits.h>
#include <stdarg.h>
#include <string.h>

const char *sp_config_show(const json_t *v, char out[64])
{
    static const char *const type_names[] = {[JSON_OBJECT] = "an object",
                                             [JSON_ARRAY] = "a list",
                                             [JSON_TRUE] = "true",
                                             [JSON_FALSE] = "false",
                                             [JSON_NULL] = "null"};

    if (json_is_string(v))
        snprintf(out, 64, "'%.48s'", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out, 64, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, 64, "%g", json_real_value(v));
    else
        snprintf(out, 64, "%s", type_names[json_typeof(v)]);
    return out;
}

int sp_config_refuse(const char *where, const char *key, const json_t *v, const char *fmt, ...)
{
    char value[64], rest[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(rest, sizeof rest, fmt, ap);
    va_end(ap);
    return sp_error(EINVAL, "%s: %s is %s, %s", where, key, sp_config_show(v, value), rest);
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

    if (!v && fallback) {
        *out = fallback;
        return 0;
    }
    if (!v)
        return sp_error(EINVAL, "%s: %s is missing", c->where, key);
    if (!json_is_integer(v))
        return sp_config_refuse(c->where, key, v, "it must be an integer");
    if (json_integer_value(v) < 1 || json_integer_value(v) > INT_MAX)
        return sp_config_refuse(c->where, key, v, "it must be between 1 and %d", INT_MAX);
    *out = (int)json_integer_value(v);
    return 0;
}

int sp_config_real(const struct sp_config *c, const json_t *obj, const char *key, double fallback,
                   float *out)
{
    const json_t *v = sp_config_member(obj, key);

    if (v && !json_is_number(v))
        return sp_config_refuse(c->where, key, v, "it must be a number");
    *out = (float)(v ? json_number_value(v) : fallback);
    return 0;
}

int sp_config_bool(const struct sp_config *c, const char *key, bool fallback, bool *out)
{
    const json_t *v = sp_config_member(c->root, key);

    if (v && !json_is_boolean(v))
        return sp_config_refuse(c->where, key, v, "it must be true or false");
    *out = v ? json_is_true(v) : fallback;
    return 0;
}

/* ---- keys of others ---------------------------------------------------------------------- */

/* With the value that changes nothing: after "=", or false, 0, an empty list or object. null always does. */
static const char others[] =
    "quantization_config compression_config pruned_heads per_layer_config is_encoder_decoder "
    "is_causal=true pretraining_tp=1 "
    /* attention */
    "use_sliding_window attention_chunk_size attn_logit_softcapping final_logit_softcapping "
    "query_pre_attn_scalar attention_multiplier clip_qkv qkv_bias attention_out_bias qk_norm "
    "use_qk_norm qk_layernorm multi_query q_lora_rank kv_lora_rank "
    /* positions */
    "alibi use_alibi rope_interleaved partial_rotary_factor=1 rotary_pct=1 no_rope_layers "
    /* layers */
    "parallel_attn use_parallel_residual num_local_experts num_experts n_routed_experts "
    "mlp_only_layers embedding_multiplier=1 residual_multiplier=1 logits_scaling=1 "
    "logit_scale=1 scale_emb=1 scale_depth dim_model_base";

static bool changes_nothing(const json_t *v, const char *harmless)
{
    if (!strcmp(harmless, "1"))
        return json_is_number(v) && json_number_value(v) == 1;
    if (!strcmp(harmless, "true"))
        return json_is_true(v);
    return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static int check_others(const json_t *root, const char *where)
{
    char list[sizeof others], *rest = list, *key;

    memcpy(list, others, sizeof others);
    while ((key = strsep(&rest, " "))) {
        const char *harmless = strchr(key, '=') ? strchr(key, '=') + 1 : "null";
        const json_t *v;

        key[strcspn(key, "=")] = '\0';
        v = sp_config_member(root, key);
        if (v && !changes_nothing(v, harmless))
            return sp_config_refuse(where, key, v, "only %s is supported", harmless);
    }
    return 0;
}

/* A window that is not switched off and is shorter than the longest sequence. Mistral's is read:
 * sequences are compared with it. */
static int check_window(const json_t *root, const char *where, const struct sp_model *m)
{
    const json_t *v = sp_config_member(root, "sliding_window");
    const json_t *use = json_object_get(root, "use_sliding_window");
    bool qwen = m->relative == SP_QWEN2 || m->relative == SP_QWEN3; /* not used unless said so */

    if (!v || json_is_false(use) || (qwen && !use) || m->relative == SP_MISTRAL ||
        (json_is_integer(v) && json_integer_value(v) >= m->positions))
        return 0;
    return sp_config_refuse(where, "sliding_window", v, "only null is supported");
}

/* transformers may say of each layer what it is. */
static int check_layer_types(const json_t *root, const char *where)
{
    const json_t *types = sp_config_member(root, "layer_types"), *v;
    char text[64];
    size_t i;

    if (!types)
        return 0;
    if (!json_is_array(types))
        return sp_config_refuse(where, "layer_types", types, "it must be a list");
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
    const json_t *code =
        sp_config_member(json_object_get(root, "auto_map"), "AutoModelForCausalLM");
    char text[64];

    if (!code)
        return 0;
    return sp_error(EINVAL,
                    "%s: auto_map names code of its own for the model, %s, which is not run", where,
                    sp_config_show(code, text));
}

/* ---- a value under another name ----------------------------------------------------------- */

/* Every one of `keys`, which have blanks between, must be `value` if it is there, to the last digit of a float. */
static int check_same_value(const json_t *root, const char *where, const char *name, double value,
                            const char *keys)
{
    char list[128], *rest = list, *key;

    snprintf(list, sizeof list, "%s", keys);
    while ((key = strsep(&rest, " "))) {
        const json_t *v = sp_config_member(root, key);

        if (v && (!json_is_number(v) || (float)json_number_value(v) != (float)value))
            return sp_config_refuse(where, key, v, "but %s is %g", name, value);
    }
    return 0;
}

static int check_names(const json_t *root, const char *where, const struct sp_model *m)
{
    const struct {
        enum sp_arch arch;
        const char *name;
        double value;
        const char *keys;
    } values[] = {
        {SP_ARCH_GPT2, "n_embd", m->hidden, "hidden_size"},
        {SP_ARCH_GPT2, "n_head", m->heads, "num_attention_heads num_key_value_heads"},
        {SP_ARCH_GPT2, "n_layer", m->layers, "num_hidden_layers"},
        {SP_ARCH_GPT2, "n_positions", m->positions, "max_position_embeddings n_ctx"},
        {SP_ARCH_GPT2, "n_inner", m->mlp, "intermediate_size"},
        {SP_ARCH_GPT2, "n_embd / n_head", m->head_dim, "head_dim"},
        {SP_ARCH_GPT2, "layer_norm_epsilon", m->norm_eps,
         "layer_norm_eps layernorm_epsilon norm_epsilon norm_eps rms_norm_eps"},
        {SP_ARCH_LLAMA, "rms_norm_eps", m->norm_eps,
         "rms_norm_epsilon layer_norm_epsilon layer_norm_eps layernorm_epsilon norm_epsilon "
         "norm_eps"},
        {SP_ARCH_LLAMA, "rope_theta", m->rope.theta, "rotary_emb_base rope_base rotary_base"},
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].arch == m->arch)
            SP_TRY(check_same_value(root, where, values[i].name, values[i].value, values[i].keys));
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
