/* The files of a directory that say what its tokens are. */
#include "model/files/foreign_json.h"
#include "model/files/input.h"
#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- the tokens around a text: bos, eos -------------------------------------------------------- */

static int add_id(const struct sp_part *p, struct sp_around *a, const json_t *id)
{
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;

    if (value < 0 || value >= SP_TOKENIZER_MAX_IDS || a->n == SP_AROUND)
        return sp_part_refuse(
            p, "%s", a->n == SP_AROUND ? "too many tokens around a text" : "a token without id");
    a->id[a->n++] = (uint32_t)value;
    return 0;
}

static int refuse_second(const struct sp_part *p, struct sp_tokenizer *t)
{
    if (t->around)
        return sp_part_refuse(p, "a second one is not supported");
    t->around = true;
    return 0;
}

/* A token of "single", by its name in "special_tokens". */
static int add_special(const struct sp_part *p, struct sp_around *a, const json_t *piece)
{
    const char *name = json_string_value(json_object_get(piece, "id"));
    const json_t *token =
        name ? json_object_get(json_object_get(p->json, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(token, "ids");
    int err = 0;

    if (!json_is_array(ids))
        return sp_part_refuse(p, "the special token '%s' has no ids", name ? name : "");
    for (size_t i = 0; !err && i < json_array_size(ids); i++)
        err = add_id(p, a, json_array_get(ids, i));
    return err;
}

static int read_template(const struct sp_part *p, void *to)
{
    struct sp_tokenizer *t = to;
    const json_t *single = json_object_get(p->json, "single");
    struct sp_around *side = &t->before;
    int err = refuse_second(p, t);

    for (size_t i = 0; !err && i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");

        if (special)
            err = add_special(p, side, special);
        else if (side == &t->before && json_object_get(piece, "Sequence"))
            side = &t->after;
        else
            err = sp_part_refuse(p, "\"single\" is not one text with special tokens around");
    }
    if (!err && side == &t->before)
        err = sp_part_refuse(p, "\"single\" has no text");
    return err;
}

/* "cls": ["<s>", 0] before and "sep": ["</s>", 2] behind. */
static int read_pair(const struct sp_part *p, void *to)
{
    struct sp_tokenizer *t = to;

    SP_TRY(refuse_second(p, t));
    SP_TRY(add_id(p, &t->before, json_array_get(json_object_get(p->json, "cls"), 1)));
    return add_id(p, &t->after, json_array_get(json_object_get(p->json, "sep"), 1));
}

/* It moves offsets, and no ids. */
static int read_byte_level(const struct sp_part *p, void *to)
{
    (void)p;
    (void)to;
    return 0;
}

static int read_around(struct sp_tokenizer *t, const json_t *json, const char *where)
{
    static const struct sp_part_type types[] = {{"TemplateProcessing", read_template},
                                                {"RobertaProcessing", read_pair},
                                                {"BertProcessing", read_pair},
                                                {"ByteLevel", read_byte_level},
                                                {NULL, NULL}};
    const struct sp_part p = {json, where, "post_processor", ""};

    return sp_part_read(&p, "processors", types, t);
}

/* ---- what belongs together --------------------------------------------------------------------- */

/* An added token that the vocabulary has too must have the same id there, and an id one text. */
static int check_added(const struct sp_tokenizer *t, const char *where)
{
    for (size_t i = 0; i < t->added.n; i++) {
        const struct sp_added_token *a = &t->added.token[i];
        int64_t id = sp_vocabulary_find(&t->vocabulary, a->content, a->n);
        size_t n;

        if (id >= 0 ? id != (int64_t)a->id : sp_vocabulary_text(&t->vocabulary, a->id, &n) != NULL)
            return sp_error(EINVAL,
                            "%s: the added token '%s' has id %u, which the vocabulary gives to "
                            "another token",
                            where, a->content, (unsigned)a->id);
    }
    return 0;
}

/* Added tokens that are looked for in normal text take their normal form. */
static int normalize_added(struct sp_tokenizer *t)
{
    struct sp_normalizer_room room = {.matcher = sp_matcher_create()};
    int err = room.matcher ? 0 : sp_error(ENOMEM, "no memory for added tokens");

    for (size_t i = 0; !err && i < t->added.n; i++) {
        struct sp_added_token *a = &t->added.token[i];

        if (!a->normalized || !t->normalizer.steps)
            continue;
        err = sp_normalizer_run(&t->normalizer, &room, a->content, a->n, false);
        if (err)
            break;
        free(a->found);
        a->found = room.out.at;
        a->found_n = room.out.n;
        room.out = (struct sp_bytes){0};
    }
    free(room.out.at);
    free(room.spare.at);
    sp_matcher_destroy(room.matcher);
    return err;
}

static int count_ids(struct sp_tokenizer *t, const char *where)
{
    const struct sp_around *sides[] = {&t->before, &t->after};

    t->vocab = t->vocabulary.ids;
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.token[i].id >= t->vocab)
            t->vocab = t->added.token[i].id + 1;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < sides[k]->n; i++)
            if (sides[k]->id[i] >= t->vocab)
                return sp_error(EINVAL, "%s: post_processor: there is no token %u", where,
                                (unsigned)sides[k]->id[i]);
    return 0;
}

static int read_parts(struct sp_tokenizer *t, const json_t *root, const char *where)
{
    const struct sp_part file = {root, where, "the file", ""};

    /* Padding and truncation are of batches. */
    SP_TRY(sp_part_keys(&file, "version truncation padding added_tokens normalizer pre_tokenizer "
                               "post_processor decoder model"));
    SP_TRY(sp_normalizer_read(&t->normalizer, json_object_get(root, "normalizer"), where));
    SP_TRY(sp_pretokenizer_read(&t->pretokenizer, json_object_get(root, "pre_tokenizer"), where));
    SP_TRY(sp_model_read(t, json_object_get(root, "model"), where));
    SP_TRY(sp_added_read(&t->added, json_object_get(root, "added_tokens"), where));
    SP_TRY(check_added(t, where));
    SP_TRY(read_around(t, json_object_get(root, "post_processor"), where));
    SP_TRY(sp_decoder_read(&t->decoder, json_object_get(root, "decoder"), where));
    SP_TRY(count_ids(t, where));
    SP_TRY(normalize_added(t));
    if (sp_added_index(&t->added))
        return sp_error(ENOMEM, "%s: no memory for added tokens", where);
    t->words = sp_pretokenizer_words(&t->pretokenizer);
    return sp_cut_prepare(t);
}

int sp_tokenizer_parse(const char *json, size_t len, const char *where, struct sp_tokenizer **t)
{
    struct sp_tokenizer *made = calloc(1, sizeof *made);
    json_error_t why;
    json_t *root;
    int err;

    if (!made)
        return sp_error(ENOMEM, "%s: no memory for a tokenizer", where);
    for (int i = 0; i < SP_SPECIAL_TOKENS; i++)
        made->special[i] = -1;
    root = sp_foreign_json_with(json, len, JSON_ALLOW_NUL, &why);
    if (!root)
        err = sp_error(EINVAL, "%s: line %d: %s", where, why.line, why.text);
    else if (!json_is_object(root))
        err = sp_error(EINVAL, "%s: no JSON object", where);
    else
        err = read_parts(made, root, where);
    json_decref(root);
    if (err)
        sp_tokenizer_close(made);
    else
        *t = made;
    return err;
}

void sp_tokenizer_close(struct sp_tokenizer *t)
{
    if (!t)
        return;
    sp_bpe_destroy(&t->bpe);
    sp_unigram_destroy(&t->unigram);
    sp_vocabulary_destroy(&t->vocabulary);
    sp_added_destroy(&t->added);
    sp_normalizer_destroy(&t->normalizer);
    sp_pretokenizer_destroy(&t->pretokenizer);
    sp_decoder_destroy(&t->decoder);
    free(t);
}

uint32_t sp_tokenizer_vocab(const struct sp_tokenizer *t)
{
    return t->vocab;
}

int64_t sp_tokenizer_special(const struct sp_tokenizer *t, enum sp_special_token which)
{
    return t->special[which];
}

/* ---- the files beside it ----------------------------------------------------------------------- */

/* *root NULL: it is not there. */
static int read_beside(const struct sp_dir *dir, const char *name, json_t **root)
{
    struct stat st;
    json_error_t why;
    char *text;
    size_t len;

    *root = NULL;
    if (!sp_dir_has(dir, name, &st))
        return 0;
    SP_TRY(sp_input_read_in(dir, name, SP_TOKENIZER_MAX_BYTES, "such a file", &text, &len));
    *root = sp_foreign_json(text, len, &why);
    free(text);
    return *root ? 0 : sp_error(EINVAL, "%s/%s: line %d: %s", dir->path, name, why.line, why.text);
}

/* "bos_token": "<s>" or {"content": "<s>"}; "bos_token_id": 1 or [1, 2]. */
static int64_t find_special(const struct sp_tokenizer *t, const json_t *root, const char *name)
{
    char key[32];
    const json_t *token = json_object_get(root, name), *id;

    if (json_is_object(token))
        token = json_object_get(token, "content");
    if (json_is_string(token))
        return sp_tokenizer_id(t, json_string_value(token), json_string_length(token));
    snprintf(key, sizeof key, "%s_id", name);
    id = json_object_get(root, key);
    if (json_is_array(id))
        id = json_array_get(id, 0);
    return json_is_integer(id) && json_integer_value(id) >= 0 &&
                   json_integer_value(id) < (json_int_t)t->vocab
               ? json_integer_value(id)
               : -1;
}

/* A model may have more tokens than its tokenizer. */
static void widen(struct sp_tokenizer *t, const json_t *config)
{
    const json_t *size = json_object_get(config, "vocab_size");

    if (json_is_integer(size) && json_integer_value(size) > (json_int_t)t->vocab &&
        json_integer_value(size) <= SP_TOKENIZER_MAX_IDS)
        t->vocab = (uint32_t)json_integer_value(size);
}

static int read_specials(const struct sp_dir *dir, struct sp_tokenizer *t)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "config.json"};
    static const char *const names[] = {
        [SP_TOKEN_BOS] = "bos_token", [SP_TOKEN_EOS] = "eos_token", [SP_TOKEN_PAD] = "pad_token"};

    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        json_t *root;
        int err = read_beside(dir, files[f], &root);

        if (err)
            return err;
        widen(t, root);
        for (int i = 0; i < SP_SPECIAL_TOKENS; i++)
            if (t->special[i] < 0)
                t->special[i] = find_special(t, root, names[i]);
        json_decref(root);
    }
    return 0;
}

int sp_tokenizer_open_in(const struct sp_dir *dir, struct sp_tokenizer **t)
{
    struct stat st;
    char *text = NULL, *path;
    size_t len;
    int err;

    if (!sp_dir_has(dir, SP_TOKENIZER_FILE, &st))
        return -ENOENT;
    path = sp_dir_join(dir, SP_TOKENIZER_FILE);
    if (!path)
        return sp_error(ENOMEM, "no memory for a path");
    err = sp_input_read_in(dir, SP_TOKENIZER_FILE, SP_TOKENIZER_MAX_BYTES, "a tokenizer", &text,
                           &len);
    err = err == -ENOENT ? -EIO : err;
    err = err ? err : sp_tokenizer_parse(text, len, path, t);
    free(text);
    free(path);
    if (err)
        return err;
    err = read_specials(dir, *t);
    err = err == -ENOENT ? -EIO : err; /* a link to nothing */
    if (err) {
        sp_tokenizer_close(*t);
        *t = NULL;
    }
    return err;
}
