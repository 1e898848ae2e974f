/*
 * config.json of Hugging Face, read. What would change the numbers of a model and is not
 * implemented is refused, never skipped.
 */
#include "model/config_keys.h"
#include "sp_error.h"
#include <jansson.h>
#include <limits.h>
#include <string.h>

/* ---- typed access: each prints what is wrong and returns -EINVAL ---------------------- */

struct config {
    const json_t *root;
    const char *where;
};

/* A member that is there and not null. */
static const json_t *member(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return json_is_null(v) ? NULL : v;
}

/* A size, 1 .. INT_MAX; absent or null: `fallback`, or an error if that is 0. */
static int get_size(const struct config *c, const char *key, int fallback, int *out)
{
    const json_t *v = member(c->root, key);
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

static int get_real(const struct config *c, const json_t *obj, const char *key, double fallback,
                    float *out)
{
    const json_t *v = member(obj, key);
    char text[64];

    if (v && !json_is_number(v))
        return sp_error(EINVAL, "%s: %s is %s, it must be a number", c->where, key,
                        sp_config_show(v, text));
    /* sp_model_check judges the value; an overflow to infinity does not pass it */
    *out = (float)(v ? json_number_value(v) : fallback);
    return 0;
}

static int get_bool(const struct config *c, const char *key, bool fallback, bool *out)
{
    const json_t *v = member(c->root, key);
    char text[64];

    if (v && !json_is_boolean(v))
        return sp_error(EINVAL, "%s: %s is %s, it must be true or false", c->where, key,
                        sp_config_show(v, text));
    *out = v ? json_is_true(v) : fallback;
    return 0;
}

/* Refuses a switch that is set to something else than `only`. */
static int require_bool(const struct config *c, const char *key, bool only)
{
    bool value = only;
    int rc = get_bool(c, key, only, &value);

    if (!rc && value != only)
        rc = sp_error(EINVAL, "%s: %s is %s, only %s is supported", c->where, key,
                      value ? "true" : "false", only ? "true" : "false");
    return rc;
}

/* Refuses a text that is neither `one` nor `other`; absent passes. */
static int require_text(const struct config *c, const json_t *obj, const char *key, const char *one,
                        const char *other)
{
    const json_t *v = member(obj, key);
    char text[64];

    if (!v)
        return 0;
    if (json_is_string(v) &&
        (!strcmp(json_string_value(v), one) || !strcmp(json_string_value(v), other)))
        return 0;
    if (strcmp(one, other))
        return sp_error(EINVAL, "%s: %s is %s, %s or %s would do", c->where, key,
                        sp_config_show(v, text), one, other);
    return sp_error(EINVAL, "%s: %s is %s, only %s is supported", c->where, key,
                    sp_config_show(v, text), one);
}

/* There is no dropout here: said, because training with it gives other numbers. */
static int ignore_dropout(const struct config *c, const char *key)
{
    float p;
    int rc = get_real(c, c->root, key, 0, &p);

    if (!rc && p != 0)
        sp_warn("%s: %s is %g, trained without dropout", c->where, key, p);
    return rc;
}

/* ---- the two architectures --------------------------------------------------------------- */

/* The checks run in order and stop at the first that fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

static int head_size(const struct config *c, const struct sp_model *m, int *d)
{
    if (m->hidden % m->heads)
        return sp_error(EINVAL, "%s: hidden size %d is not a multiple of %d heads", c->where,
                        m->hidden, m->heads);
    *d = m->hidden / m->heads;
    return 0;
}

static int parse_gpt2(const struct config *c, struct sp_model *m)
{
    m->arch = SP_ARCH_GPT2;
    TRY(get_size(c, "n_layer", 0, &m->layers));
    TRY(get_size(c, "n_embd", 0, &m->hidden));
    TRY(get_size(c, "n_head", 0, &m->heads));
    TRY(get_size(c, "n_positions", 0, &m->positions));
    TRY(get_size(c, "vocab_size", 0, &m->vocab));
    TRY(head_size(c, m, &m->head_dim));
    m->kv_heads = m->heads;
    if (m->hidden > INT_MAX / 4)
        return sp_error(EINVAL, "%s: n_embd is %d, too large", c->where, m->hidden);
    TRY(get_size(c, "n_inner", 4 * m->hidden, &m->mlp));
    TRY(get_real(c, c->root, "layer_norm_epsilon", 1e-5, &m->norm_eps));
    TRY(get_bool(c, "tie_word_embeddings", true, &m->tied));
    TRY(require_text(c, c->root, "activation_function", "gelu_new", "gelu_pytorch_tanh"));
    TRY(require_bool(c, "scale_attn_weights", true));
    TRY(require_bool(c, "scale_attn_by_inverse_layer_idx", false));
    TRY(require_bool(c, "reorder_and_upcast_attn", false));
    TRY(require_bool(c, "add_cross_attention", false));
    TRY(ignore_dropout(c, "resid_pdrop"));
    TRY(ignore_dropout(c, "embd_pdrop"));
    return ignore_dropout(c, "attn_pdrop");
}

/* A scaling that says no type is one nevertheless: whatever else `rope` has must change nothing. */
static int check_rope_keys(const struct config *c, const char *name, const json_t *rope)
{
    static const char *const known[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    const char *key;
    json_t *v;
    char text[64];

    json_object_foreach((json_t *)rope, key, v)
    {
        bool is_known = json_is_null(v) ||
                        (!strcmp(key, "factor") && json_is_number(v) && json_number_value(v) == 1);

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || !strcmp(key, known[i]);
        if (!is_known)
            return sp_error(EINVAL, "%s: %s.%.40s is %s, scaled rotary positions are not supported",
                            c->where, name, key, sp_config_show(v, text));
    }
    return 0;
}

/* Rotary positions: rope_theta, or rope_parameters.rope_theta since transformers 5. */
static int parse_rope(const struct config *c, struct sp_model *m)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    float nested, partial;
    char text[64];

    TRY(get_real(c, c->root, "rope_theta", 10000, &m->rope_theta));
    for (size_t i = 0; i < 2; i++) {
        const json_t *rope = member(c->root, keys[i]);

        if (!rope)
            continue;
        if (!json_is_object(rope))
            return sp_error(EINVAL, "%s: %s is %s, it must be an object", c->where, keys[i],
                            sp_config_show(rope, text));
        TRY(require_text(c, rope, "rope_type", "default", "default"));
        TRY(require_text(c, rope, "type", "default", "default"));
        TRY(get_real(c, rope, "partial_rotary_factor", 1, &partial));
        if (partial != 1)
            return sp_error(EINVAL, "%s: partial_rotary_factor is %g, only 1 is supported",
                            c->where, partial);
        TRY(check_rope_keys(c, keys[i], rope));
        TRY(get_real(c, rope, "rope_theta", m->rope_theta, &nested));
        if (member(c->root, "rope_theta") && nested != m->rope_theta)
            return sp_error(EINVAL, "%s: rope_theta is %g, %s.rope_theta %g", c->where,
                            m->rope_theta, keys[i], nested);
        m->rope_theta = nested;
    }
    return 0;
}

static int parse_llama(const struct config *c, struct sp_model *m)
{
    m->arch = SP_ARCH_LLAMA;
    TRY(get_size(c, "num_hidden_layers", 0, &m->layers));
    TRY(get_size(c, "hidden_size", 0, &m->hidden));
    TRY(get_size(c, "num_attention_heads", 0, &m->heads));
    TRY(get_size(c, "intermediate_size", 0, &m->mlp));
    TRY(get_size(c, "vocab_size", 0, &m->vocab));
    TRY(get_size(c, "max_position_embeddings", 0, &m->positions));
    TRY(get_size(c, "num_key_value_heads", m->heads, &m->kv_heads));
    if (!member(c->root, "head_dim"))
        TRY(head_size(c, m, &m->head_dim));
    else
        TRY(get_size(c, "head_dim", 0, &m->head_dim));
    TRY(get_real(c, c->root, "rms_norm_eps", 1e-6, &m->norm_eps));
    TRY(get_bool(c, "tie_word_embeddings", false, &m->tied));
    TRY(require_text(c, c->root, "hidden_act", "silu", "silu"));
    TRY(require_bool(c, "attention_bias", false));
    TRY(require_bool(c, "mlp_bias", false));
    TRY(parse_rope(c, m));
    return ignore_dropout(c, "attention_dropout");
}

int sp_model_parse_config(const char *json, size_t len, const char *where, struct sp_model *m)
{
    struct config c = {.where = where};
    struct sp_model parsed = {0};
    const json_t *type;
    json_error_t err;
    char text[64];
    json_t *root;
    int rc;

    root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &err);
    if (!root) {
        for (char *p = err.text; *p; p++) {
            if ((unsigned char)*p < 0x20)
                *p = '?';
        }
        return sp_error(EINVAL, "%s: line %d: not valid JSON: %s", where, err.line, err.text);
    }
    c.root = root;
    type = member(root, "model_type");
    if (!json_is_object(root))
        rc = sp_error(EINVAL, "%s: not a JSON object", where);
    else if (!type)
        rc = sp_error(EINVAL, "%s: model_type is missing, gpt2 or llama would do", where);
    else if (json_is_string(type) && !strcmp(json_string_value(type), "gpt2"))
        rc = parse_gpt2(&c, &parsed);
    else if (json_is_string(type) && !strcmp(json_string_value(type), "llama"))
        rc = parse_llama(&c, &parsed);
    else
        rc = sp_error(EINVAL, "%s: model_type is %s, gpt2 or llama would do", where,
                      sp_config_show(type, text));
    if (!rc)
        rc = sp_config_check_keys(root, where, &parsed);
    json_decref(root);
    if (!rc)
        rc = sp_model_check(&parsed, where);
    if (rc)
        return rc;
    snprintf(parsed.name, sizeof parsed.name, "%s", where);
    *m = parsed;
    return 0;
}
