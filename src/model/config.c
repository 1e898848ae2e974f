/*
 * Reads config.json of Hugging Face. A key that would change the numbers of a model and is not
 * implemented is refused, never skipped.
 */
#include "model/config_keys.h"
#include "model/files/dir.h"
#include "model/files/foreign_json.h"
#include "model/files/input.h"
#include "model/model_types.h"
#include "model/try.h"
#include "sp_error.h"
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Refuses a switch that is set to something else than `only`. */
static int require_bool(const struct sp_config *c, const char *key, bool only)
{
    bool value = only;
    int rc = sp_config_bool(c, key, only, &value);

    if (!rc && value != only)
        rc = sp_error(EINVAL, "%s: %s is %s, only %s is supported", c->where, key,
                      value ? "true" : "false", only ? "true" : "false");
    return rc;
}

/* Adds to "a, b or c". */
enum { CHOICES = 160 };
static void add_choice(char known[CHOICES], const char *name, bool last)
{
    size_t used = strlen(known);

    snprintf(known + used, CHOICES - used, "%s%s", !used ? "" : last ? " or " : ", ", name);
}

/* The activation of the MLP. */
static int parse_activation(const struct sp_config *c, const char *key, int *act)
{
    const json_t *v = sp_config_member(c->root, key);
    char known[CHOICES] = "";

    if (!v)
        return 0;
    for (int i = 1; sp_activation_names[i].name; i++) {
        const char *name = sp_activation_names[i].name;

        if (json_is_string(v) && !strcmp(json_string_value(v), name)) {
            *act = i;
            return 0;
        }
        add_choice(known, name, !sp_activation_names[i + 1].name);
    }
    return sp_config_refuse(c->where, key, v, "%s would do", known);
}

/* Keeps tokens that are in the vocabulary. transformers also writes ids of other vocabularies,
 * which mean nothing here. */
static void parse_tokens(const struct sp_config *c, const char *key, int vocab,
                         struct sp_token_ids *ids)
{
    const json_t *v = sp_config_member(c->root, key);
    const int most = (int)(sizeof ids->id / sizeof *ids->id);
    struct sp_token_ids read = {.list = json_is_array(v)};
    int n = read.list ? (int)json_array_size(v) : v ? 1 : 0;

    for (int i = 0; i < n && read.n < most; i++) {
        const json_t *id = read.list ? json_array_get(v, (size_t)i) : v;

        if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < vocab)
            read.id[read.n++] = (int)json_integer_value(id);
    }
    if (read.n)
        *ids = read;
}

/* There is none here: what trains says so, because with it the numbers are others. */
static int note_dropout(const struct sp_config *c, const char *key, struct sp_model *m)
{
    float p;
    int rc = sp_config_real(c, c->root, key, 0, &p);

    if (!rc && p > m->dropout)
        m->dropout = p;
    return rc;
}

/* ---- rotary positions: rope_theta and rope_scaling, or rope_parameters since transformers 5 ---- */

static const char *const rope_types[] = {
    [SP_ROPE_DEFAULT] = "default", [SP_ROPE_LINEAR] = "linear", [SP_ROPE_LLAMA3] = "llama3"};

/* Reads the type under either of its names; without one it stays SP_ROPE_DEFAULT. */
static int parse_rope_type(const struct sp_config *c, const json_t *rope, const char *key,
                           enum sp_rope_type *type)
{
    const json_t *v = sp_config_member(rope, key);

    if (!v)
        return 0;
    for (size_t i = 0; json_is_string(v) && i < sizeof rope_types / sizeof *rope_types; i++)
        if (!strcmp(json_string_value(v), rope_types[i])) {
            *type = (enum sp_rope_type)i;
            return 0;
        }
    return sp_config_refuse(c->where, key, v, "default, linear and llama3 are supported");
}

/* Refuses keys that the type does not read: a scaling without a type would still change the
 * model. */
static int check_rope_keys(const struct sp_config *c, const char *name, const json_t *rope,
                           enum sp_rope_type type)
{
    static const struct {
        const char *key;
        enum sp_rope_type from; /* types from here on read it */
    } known[] = {
        {"rope_type", SP_ROPE_DEFAULT},       {"type", SP_ROPE_DEFAULT},
        {"rope_theta", SP_ROPE_DEFAULT},      {"partial_rotary_factor", SP_ROPE_DEFAULT},
        {"factor", SP_ROPE_LINEAR},           {"low_freq_factor", SP_ROPE_LLAMA3},
        {"high_freq_factor", SP_ROPE_LLAMA3}, {"original_max_position_embeddings", SP_ROPE_LLAMA3}};
    const char *key;
    json_t *v;
    char text[64];

    json_object_foreach((json_t *)rope, key, v)
    {
        bool is_known = json_is_null(v) ||
                        (!strcmp(key, "factor") && json_is_number(v) && json_number_value(v) == 1);

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || (type >= known[i].from && !strcmp(key, known[i].key));
        if (!is_known)
            return sp_error(EINVAL, "%s: %s.%.40s is %s, which is not supported for type %s",
                            c->where, name, key, sp_config_show(v, text), rope_types[type]);
    }
    return 0;
}

static int parse_rope_scaling(const struct sp_config *c, const json_t *from, struct sp_rope *rope)
{
    if (rope->type == SP_ROPE_DEFAULT)
        return 0;
    SP_TRY(sp_config_real(c, from, "factor", 0, &rope->factor));
    if (rope->type == SP_ROPE_LINEAR)
        return 0;
    SP_TRY(sp_config_real(c, from, "low_freq_factor", 0, &rope->low));
    SP_TRY(sp_config_real(c, from, "high_freq_factor", 0, &rope->high));
    return sp_config_size(c, from, "original_max_position_embeddings", 0, &rope->original);
}

static int parse_rope_object(const struct sp_config *c, const char *name, struct sp_rope *rope)
{
    const json_t *from = sp_config_member(c->root, name);
    struct sp_rope read = {.theta = rope->theta};
    float partial;

    if (!from)
        return 0;
    if (!json_is_object(from))
        return sp_config_refuse(c->where, name, from, "it must be an object");
    SP_TRY(parse_rope_type(c, from, "type", &read.type));
    SP_TRY(parse_rope_type(c, from, "rope_type", &read.type));
    SP_TRY(sp_config_real(c, from, "partial_rotary_factor", 1, &partial));
    if (partial != 1)
        return sp_error(EINVAL, "%s: partial_rotary_factor is %g, only 1 is supported", c->where,
                        partial);
    SP_TRY(check_rope_keys(c, name, from, read.type));
    SP_TRY(sp_config_real(c, from, "rope_theta", rope->theta, &read.theta));
    if (sp_config_member(c->root, "rope_theta") && read.theta != rope->theta)
        return sp_error(EINVAL, "%s: rope_theta is %g, %s.rope_theta %g", c->where, rope->theta,
                        name, read.theta);
    SP_TRY(parse_rope_scaling(c, from, &read));
    if (rope->type != SP_ROPE_DEFAULT && read.type != rope->type)
        return sp_error(EINVAL, "%s: rope_scaling is of type %s, %s of type %s", c->where,
                        rope_types[rope->type], name, rope_types[read.type]);
    *rope = read;
    return 0;
}

static int parse_rope(const struct sp_config *c, struct sp_rope *rope)
{
    *rope = (struct sp_rope){0};
    SP_TRY(sp_config_real(c, c->root, "rope_theta", 10000, &rope->theta));
    SP_TRY(parse_rope_object(c, "rope_scaling", rope));
    return parse_rope_object(c, "rope_parameters", rope);
}

/* ---- the two styles --------------------------------------------------------------- */

static int head_size(const struct sp_config *c, const struct sp_model *m, int *d)
{
    if (m->hidden % m->heads)
        return sp_error(EINVAL, "%s: hidden size %d is not a multiple of %d heads", c->where,
                        m->hidden, m->heads);
    *d = m->hidden / m->heads;
    return 0;
}

static int parse_gpt2(const struct sp_config *c, struct sp_model *m)
{
    SP_TRY(sp_config_size(c, c->root, "n_layer", 0, &m->layers));
    SP_TRY(sp_config_size(c, c->root, "n_embd", 0, &m->hidden));
    SP_TRY(sp_config_size(c, c->root, "n_head", 0, &m->heads));
    SP_TRY(sp_config_size(c, c->root, "n_positions", 0, &m->positions));
    SP_TRY(sp_config_size(c, c->root, "vocab_size", 0, &m->vocab));
    SP_TRY(head_size(c, m, &m->head_dim));
    m->kv_heads = m->heads;
    if (m->hidden > INT_MAX / 4)
        return sp_error(EINVAL, "%s: n_embd is %d, too large", c->where, m->hidden);
    SP_TRY(sp_config_size(c, c->root, "n_inner", 4 * m->hidden, &m->mlp));
    SP_TRY(sp_config_real(c, c->root, "layer_norm_epsilon", 1e-5, &m->norm_eps));
    SP_TRY(sp_config_bool(c, "tie_word_embeddings", true, &m->tied));
    SP_TRY(parse_activation(c, "activation_function", &m->act));
    SP_TRY(require_bool(c, "scale_attn_weights", true));
    SP_TRY(require_bool(c, "scale_attn_by_inverse_layer_idx", false));
    SP_TRY(require_bool(c, "reorder_and_upcast_attn", false));
    SP_TRY(require_bool(c, "add_cross_attention", false));
    SP_TRY(note_dropout(c, "resid_pdrop", m));
    SP_TRY(note_dropout(c, "embd_pdrop", m));
    return note_dropout(c, "attn_pdrop", m);
}

/* Biases: where the configuration says so, always, or refused. */
static int parse_biases(const struct sp_config *c, const struct sp_model_type *type,
                        struct sp_model *m)
{
    bool attention = false;

    if (type->says_attention_bias)
        SP_TRY(sp_config_bool(c, "attention_bias", false, &attention));
    else
        SP_TRY(require_bool(c, "attention_bias", false));
    if (type->says_mlp_bias)
        SP_TRY(sp_config_bool(c, "mlp_bias", false, &m->mlp_bias));
    else
        SP_TRY(require_bool(c, "mlp_bias", false));
    m->qkv_bias = attention || type->qkv_bias;
    m->out_bias = attention;
    return 0;
}

static int parse_llama(const struct sp_config *c, const struct sp_model_type *type,
                       struct sp_model *m)
{
    int d = type->head_dim;
    bool is_llama = type->relative == SP_LLAMA; /* the others have defaults of their own */

    SP_TRY(sp_config_size(c, c->root, "num_hidden_layers", 0, &m->layers));
    SP_TRY(sp_config_size(c, c->root, "hidden_size", 0, &m->hidden));
    SP_TRY(sp_config_size(c, c->root, "num_attention_heads", 0, &m->heads));
    SP_TRY(sp_config_size(c, c->root, "intermediate_size", 0, &m->mlp));
    SP_TRY(sp_config_size(c, c->root, "vocab_size", 0, &m->vocab));
    SP_TRY(sp_config_size(c, c->root, "max_position_embeddings", 0, &m->positions));
    SP_TRY(
        sp_config_size(c, c->root, "num_key_value_heads", is_llama ? m->heads : 0, &m->kv_heads));
    if (!sp_config_member(c->root, "head_dim") && !d)
        SP_TRY(head_size(c, m, &m->head_dim));
    else
        SP_TRY(sp_config_size(c, c->root, "head_dim", d, &m->head_dim));
    SP_TRY(sp_config_real(c, c->root, "rms_norm_eps", 1e-6, &m->norm_eps));
    SP_TRY(sp_config_bool(c, "tie_word_embeddings", false, &m->tied));
    SP_TRY(parse_activation(c, "hidden_act", &m->act));
    SP_TRY(parse_biases(c, type, m));
    m->qk_norm = type->qk_norm;
    SP_TRY(parse_rope(c, &m->rope));
    /* absent is another thing than null, which says that there is none */
    if (type->window && !json_is_null(json_object_get(c->root, "sliding_window")))
        SP_TRY(sp_config_size(c, c->root, "sliding_window", type->window, &m->window));
    return note_dropout(c, "attention_dropout", m);
}

static int find_type(const struct sp_config *c, const struct sp_model_type **type)
{
    const json_t *name = sp_config_member(c->root, "model_type");
    char known[CHOICES] = "";

    for (int i = 0; i < sp_model_n_types; i++) {
        *type = &sp_model_types[i];
        if (json_is_string(name) && !strcmp(json_string_value(name), (*type)->name))
            return 0;
        add_choice(known, (*type)->name, i == sp_model_n_types - 1);
    }
    if (!name)
        return sp_error(EINVAL, "%s: model_type is missing, %s would do", c->where, known);
    return sp_config_refuse(c->where, "model_type", name, "%s would do", known);
}

/* Keys of generation_config.json that change what transformers generates, and are not followed. */
static void warn_ignored(const json_t *root)
{
    static const struct {
        const char *key;
        double none; /* changes nothing; null does neither */
    } keys[] = {
        {"repetition_penalty", 1}, {"no_repeat_ngram_size", 0}, {"min_length", 0},
        {"min_new_tokens", 0},     {"suppress_tokens", 0},      {"begin_suppress_tokens", 0},
        {"bad_words_ids", 0},      {"forced_bos_token_id", -1}, {"forced_eos_token_id", -1}};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(root, keys[i].key);

        if (v && !json_is_null(v) && (!json_is_number(v) || json_number_value(v) != keys[i].none))
            sp_warn("generation_config.json: %s is not followed", keys[i].key);
    }
}

int sp_model_load_eos_in(const struct sp_dir *dir, const struct sp_model *m,
                         struct sp_token_ids *eos)
{
    struct sp_config c = {.where = "generation_config.json"};
    struct sp_token_ids own = {0};
    json_error_t why;
    json_t *root;
    struct stat st;
    char *text;
    size_t n;

    *eos = m->eos;
    if (!sp_dir_has(dir, c.where, &st))
        return 0;
    SP_TRY(sp_input_read_in(dir, c.where, SP_CONFIG_MAX_BYTES, "a config", &text, &n));
    root = sp_foreign_json(text, n, &why);
    free(text);
    if (!root)
        return sp_error(EINVAL, "%s/%s: line %d: not valid JSON: %s", dir->path, c.where, why.line,
                        why.text);
    c.root = root;
    parse_tokens(&c, "eos_token_id", m->vocab, &own);
    warn_ignored(root);
    *eos = own;
    json_decref(root);
    return 0;
}

static int parse_model(const struct sp_config *c, struct sp_model *m)
{
    const struct sp_model_type *type = NULL;

    if (!json_is_object(c->root))
        return sp_error(EINVAL, "%s: not a JSON object", c->where);
    SP_TRY(find_type(c, &type));
    m->arch = type->arch;
    m->relative = type->relative;
    SP_TRY(type->arch == SP_ARCH_GPT2 ? parse_gpt2(c, m) : parse_llama(c, type, m));
    SP_TRY(sp_config_check_keys(c->root, c->where, m));
    parse_tokens(c, "bos_token_id", m->vocab, &m->bos);
    parse_tokens(c, "eos_token_id", m->vocab, &m->eos);
    parse_tokens(c, "pad_token_id", m->vocab, &m->pad);
    snprintf(m->name, sizeof m->name, "%s", c->where);
    return sp_model_check(m, c->where);
}

int sp_model_parse_config(const char *json, size_t len, const char *where, struct sp_model *m)
{
    struct sp_model parsed = {0};
    json_error_t err;
    json_t *root = sp_foreign_json(json, len, &err);
    int rc;

    if (!root)
        return sp_error(EINVAL, "%s: line %d: not valid JSON: %s", where, err.line, err.text);
    rc = parse_model(&(struct sp_config){.root = root, .where = where}, &parsed);
    json_decref(root);
    if (!rc)
        *m = parsed;
    return rc;
}
