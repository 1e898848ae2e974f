/* config.json of Hugging Face, written. */
#include "model/config_keys.h"
#include "model/model_types.h"
#include "model/files/foreign_json.h"
#include "model/files/input.h"
#include "model/files/output.h"
#include "model/try.h"
#include "sp_error.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The number of fewest digits that is the same float: 1e-05, not 9.99999975e-06. */
static double shortest_decimal(float x)
{
    char text[32];
    double d = x;

    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        d = strtod(text, NULL);
        if ((float)d == x)
            break;
    }
    return d;
}

/* As it was read; null says that there is none: transformers' defaults need not be in the vocabulary. */
static json_t *pack_tokens(const struct sp_token_ids *ids)
{
    json_t *list;
    int failed = 0;

    if (!ids->list)
        return ids->n ? json_integer(ids->id[0]) : json_null();
    list = json_array();
    for (int i = 0; i < ids->n; i++)
        failed |= json_array_append_new(list, json_integer(ids->id[i]));
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

/* The pad token only where there is one: its absence is another thing to transformers 4 than null. */
static int add_tokens(json_t *root, const struct sp_model *m)
{
    int failed = json_object_set_new(root, "bos_token_id", pack_tokens(&m->bos));

    failed |= json_object_set_new(root, "eos_token_id", pack_tokens(&m->eos));
    if (m->pad.n)
        failed |= json_object_set_new(root, "pad_token_id", pack_tokens(&m->pad));
    return failed;
}

static const char *act_name(const struct sp_model *m, const char *usual)
{
    return m->act ? sp_activation_names[m->act].name : usual;
}

/* Dropout is written as 0: transformers takes 0.1 when it is absent. */
static json_t *pack_gpt2(const struct sp_model *m)
{
    return json_pack("{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:b, s:f, s:f, s:f, "
                     "s:s}",
                     "model_type", "gpt2", "architectures", "GPT2LMHeadModel", "n_layer", m->layers,
                     "n_embd", m->hidden, "n_head", m->heads, "n_inner", m->mlp, "n_positions",
                     m->positions, "vocab_size", m->vocab, "layer_norm_epsilon",
                     shortest_decimal(m->norm_eps), "activation_function", act_name(m, "gelu_new"),
                     "tie_word_embeddings", (int)m->tied, "resid_pdrop", 0.0, "embd_pdrop", 0.0,
                     "attn_pdrop", 0.0, "torch_dtype", "float32");
}

static json_t *pack_rope(const struct sp_rope *r)
{
    if (r->type == SP_ROPE_DEFAULT)
        return json_null();
    if (r->type == SP_ROPE_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor",
                         shortest_decimal(r->factor));
    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor",
                     shortest_decimal(r->factor), "low_freq_factor", shortest_decimal(r->low),
                     "high_freq_factor", shortest_decimal(r->high),
                     "original_max_position_embeddings", r->original);
}

/* Only the keys that a model type has: transformers would warn of others, or heed them. */
static int add_own_keys(json_t *root, const struct sp_model *m, const struct sp_model_type *type)
{
    json_t *window = m->window ? json_integer(m->window) : json_null();
    int failed = 0;

    if (type->says_attention_bias)
        failed |= json_object_set_new(root, "attention_bias", json_boolean(m->out_bias));
    if (type->says_mlp_bias)
        failed |= json_object_set_new(root, "mlp_bias", json_boolean(m->mlp_bias));
    if (type->window)
        failed |= json_object_set_new(root, "sliding_window", window);
    return failed;
}

static json_t *pack_llama(const struct sp_model *m)
{
    const struct sp_model_type *type = sp_model_type_of(m);
    json_t *root = json_pack(
        "{s:s, s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o, s:s, s:b, "
        "s:s}",
        "model_type", type->name, "architectures", type->architecture, "num_hidden_layers",
        m->layers, "hidden_size", m->hidden, "num_attention_heads", m->heads, "num_key_value_heads",
        m->kv_heads, "head_dim", m->head_dim, "intermediate_size", m->mlp, "vocab_size", m->vocab,
        "max_position_embeddings", m->positions, "rms_norm_eps", shortest_decimal(m->norm_eps),
        "rope_theta", shortest_decimal(m->rope.theta), "rope_scaling", pack_rope(&m->rope),
        "hidden_act", act_name(m, "silu"), "tie_word_embeddings", (int)m->tied, "torch_dtype",
        "float32");

    if (root && add_own_keys(root, m, type)) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

/* All that the program knows of a model. NULL without memory. */
static json_t *pack_config(const struct sp_model *m)
{
    json_t *root = m->arch == SP_ARCH_GPT2 ? pack_gpt2(m) : pack_llama(m);

    if (!root || !add_tokens(root, m))
        return root;
    json_decref(root);
    return NULL;
}

int sp_model_write_config_in(const struct sp_model *m, const struct sp_dir *dir, const char *name)
{
    json_t *root;
    int rc;

    SP_TRY(sp_model_check(m, name));
    root = pack_config(m);
    if (!root)
        return sp_error(ENOMEM, "%s: no memory for the config", name);
    rc = sp_output_json_in(dir, name, root, SP_OUTPUT_JSON);
    json_decref(root);
    return rc;
}

/* ---- a text that was read once ------------------------------------------------------------ */

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && memchr(" \t\r\n", *c->at, 4))
        c->at++;
}

static void skip_string(struct cursor *c)
{
    c->at++;
    while (c->at < c->end && *c->at != '"')
        c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
    c->at += c->at < c->end;
}

/* To the comma or the bracket after a value. */
static void skip_value(struct cursor *c)
{
    int depth = 0;

    while (c->at < c->end) {
        char x = *c->at;

        if (!depth && (x == ',' || x == '}'))
            return;
        if (x == '"') {
            skip_string(c);
            continue;
        }
        depth += (x == '{' || x == '[') - (x == '}' || x == ']');
        c->at++;
    }
}

/* The place of a member: the blanks before its key, the key, the value. */
struct member {
    const char *blanks, *key, *key_end, *value, *value_end;
};

/* The next member after the bracket or comma that the cursor is at. False: there is none. */
static bool next_member(struct cursor *c, struct member *m)
{
    if (c->at == c->end || (*c->at != '{' && *c->at != ','))
        return false;
    m->blanks = ++c->at;
    skip_blanks(c);
    m->key = c->at;
    if (c->at == c->end || *c->at != '"')
        return false;
    skip_string(c);
    m->key_end = c->at;
    skip_blanks(c);
    if (c->at == c->end || *c->at != ':')
        return false;
    c->at++;
    skip_blanks(c);
    m->value = c->at;
    skip_value(c);
    m->value_end = c->at;
    while (m->value_end > m->value && memchr(" \t\r\n", m->value_end[-1], 4))
        m->value_end--;
    return m->value_end > m->value;
}

/* ---- edits -------------------------------------------------------------------------------- */

/* True if text[begin .. end) and `json` are the same value. */
static bool same_value(const char *begin, const char *end, const char *json)
{
    json_t *a = json_loadb(begin, (size_t)(end - begin), JSON_DECODE_ANY, NULL);
    json_t *b = json_loads(json, JSON_DECODE_ANY, NULL);
    bool same = a && json_equal(a, b);

    json_decref(a);
    json_decref(b);
    return same;
}

/* True if a key, which may have escapes, is `name`. */
static bool is_key(const struct member *m, const char *name)
{
    json_t *key =
        json_loadb(m->key, (size_t)(m->key_end - m->key), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool same = json_is_string(key) && json_string_length(key) == strlen(name) &&
                !strcmp(json_string_value(key), name);

    json_decref(key);
    return same;
}

static const struct sp_config_edit *edit_of(const struct sp_config_edit *edits,
                                            const struct member *m)
{
    for (; edits->key; edits++)
        if (is_key(m, edits->key))
            return edits;
    return NULL;
}

static void write_range(FILE *f, const char *begin, const char *end)
{
    fwrite(begin, 1, (size_t)(end - begin), f);
}

/* Writes the object with its edits. False: it is no object with members. */
static bool write_edited(struct cursor *c, const struct sp_config_edit *edits, FILE *f)
{
    const char *done = c->at;
    struct member m, last = {0};
    unsigned found = 0;

    skip_blanks(c);
    if (c->at == c->end || *c->at != '{')
        return false;
    while (next_member(c, &m)) {
        const struct sp_config_edit *e = edit_of(edits, &m);

        last = m;
        if (!e)
            continue;
        found |= 1u << (e - edits);
        if (same_value(m.value, m.value_end, e->value))
            continue;
        write_range(f, done, m.value);
        fputs(e->value, f);
        done = m.value_end;
    }
    if (!last.key || c->at == c->end || *c->at != '}')
        return false;
    write_range(f, done, last.value_end);
    for (int i = 0; edits[i].key; i++)
        if (edits[i].wanted && !(found & 1u << i)) {
            putc(',', f);
            write_range(f, last.blanks, last.key);
            fprintf(f, "\"%s\": %s", edits[i].key, edits[i].value);
        }
    write_range(f, last.value_end, c->end);
    return true;
}

int sp_config_edit(const char *text, size_t len, const struct sp_config_edit *edits, char **out,
                   size_t *out_len)
{
    struct cursor c = {text, text + len};
    char *edited = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&edited, &n);
    bool is_object, failed;

    if (!f)
        return -ENOMEM;
    is_object = write_edited(&c, edits, f);
    failed = ferror(f);
    if (fclose(f) || failed || !is_object) {
        free(edited);
        return is_object ? -ENOMEM : -EINVAL;
    }
    *out = edited;
    *out_len = n;
    return 0;
}

/* ---- as it was read ----------------------------------------------------------------------- */

/* True if the text is the configuration of `m`. */
static bool says_model(const char *text, size_t len, const struct sp_model *m)
{
    bool quiet = sp_error_quiet(true), same = false;
    struct sp_model read;
    json_t *a, *b;

    if (!sp_model_parse_config(text, len, "config.json", &read)) {
        a = pack_config(&read);
        b = pack_config(m);
        same = a && b && json_equal(a, b);
        json_decref(a);
        json_decref(b);
    }
    sp_error_quiet(quiet);
    return same;
}

/* The text with the type of the weights that a run saves, and the class that they are of. */
static int edit_types(const struct sp_model *m, const char *text, size_t len, char **out,
                      size_t *out_len)
{
    static const char type[] = "\"float32\"";
    char class[96];
    json_error_t err;
    json_t *read = sp_foreign_json(text, len, &err);
    struct sp_config_edit edits[] = {
        {"architectures", class, true},
        {"dtype", type, false}, /* since transformers 5 */
        {"torch_dtype", type, !json_object_get(read, "dtype")},
        {0},
    };

    json_decref(read);
    if (!read)
        return -EINVAL;
    snprintf(class, sizeof class, "[\"%s\"]", sp_model_type_of(m)->architecture);
    return sp_config_edit(text, len, edits, out, out_len);
}

int sp_model_write_config_as_read(const struct sp_model *m, const struct sp_dir *held,
                                  const struct sp_dir *dir)
{
    char *text = NULL, *edited = NULL;
    size_t len = 0, n = 0;
    struct stat st;
    int err;

    if (!held->holds || !sp_dir_has(held, "config.json", &st))
        return sp_model_write_config_in(m, dir, "config.json");
    err = sp_input_read_in(held, "config.json", SP_CONFIG_MAX_BYTES, "a config", &text, &len);
    if (!err && !edit_types(m, text, len, &edited, &n) && says_model(edited, n, m)) {
        err = sp_output_text_in(dir, "config.json", edited, n);
    } else {
        sp_warn("%s/config.json has changed since the run began: only what starpipe knows of the "
                "model is saved",
                held->path);
        err = sp_model_write_config_in(m, dir, "config.json");
    }
    free(edited);
    free(text);
    return err;
}
