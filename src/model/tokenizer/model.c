/* "model" of tokenizer.json: the vocabulary, and what was learnt. */
#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/vocabulary.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

static int no_memory(const struct sp_part *p)
{
    return sp_error(ENOMEM, "%s: no memory for the vocabulary", p->where);
}

static int add_entry(const struct sp_part *p, struct sp_vocabulary *v, uint32_t id,
                     const char *text, size_t n)
{
    int err = sp_vocabulary_add(v, id, text, n);

    if (err == -EEXIST)
        return sp_part_refuse(p, "two tokens have id %u", (unsigned)id);
    return err ? no_memory(p) : 0;
}

/* ---- BPE --------------------------------------------------------------------------------------- */

/* {"token": id}; ids may have gaps. */
static int read_vocabulary(const struct sp_part *p, struct sp_vocabulary *v)
{
    json_t *vocab = json_object_get(p->json, "vocab"), *id;
    uint32_t ids = 0;
    const char *token;

    if (!json_is_object(vocab) || !json_object_size(vocab))
        return sp_part_refuse(p, "\"vocab\" is no object with tokens");
    json_object_foreach(vocab, token, id)
    {
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;

        if (value < 0 || value >= SP_TOKENIZER_MAX_IDS)
            return sp_part_refuse(p, "the token '%s' has an id that is not one of 0 to %d", token,
                                  SP_TOKENIZER_MAX_IDS - 1);
        ids = (uint32_t)value >= ids ? (uint32_t)value + 1 : ids;
    }
    if (sp_vocabulary_create(v, ids, json_object_size(vocab)))
        return no_memory(p);
    json_object_foreach(vocab, token, id)
    {
        SP_TRY(add_entry(p, v, (uint32_t)json_integer_value(id), token, strlen(token)));
    }
    return 0;
}

/* The two texts of a merge: "a b", or ["a", "b"]. */
static bool texts_of_merge(const json_t *merge, const char *text[2], size_t n[2])
{
    const char *space;

    if (json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *part = json_array_get(merge, i);

            text[i] = json_string_value(part);
            n[i] = json_string_length(part);
        }
        return text[0] && text[1] && n[0] && n[1];
    }
    text[0] = json_string_value(merge);
    space = text[0] ? strchr(text[0], ' ') : NULL;
    if (!space)
        return false;
    text[1] = space + 1;
    n[0] = (size_t)(space - text[0]);
    n[1] = strlen(text[1]);
    return n[0] && n[1] && !strchr(text[1], ' ') && n[0] + n[1] + 1 == json_string_length(merge);
}

static int read_merges(const struct sp_part *p, const struct sp_vocabulary *v,
                       struct sp_bpe_merges *m)
{
    const json_t *list = json_object_get(p->json, "merges");
    size_t n = json_array_size(list);

    if (!json_is_array(list))
        return sp_part_refuse(p, "\"merges\" is no list");
    m->pair = malloc((n + 1) * sizeof *m->pair);
    if (!m->pair)
        return no_memory(p);
    for (; m->n < n; m->n++) {
        const char *text[2] = {NULL, NULL};
        size_t length[2];

        if (!texts_of_merge(json_array_get(list, m->n), text, length))
            return sp_part_refuse(p, "merge %zu is neither \"a b\" nor [\"a\", \"b\"]", m->n);
        for (int i = 0; i < 2; i++) {
            int64_t id = sp_vocabulary_find(v, text[i], length[i]);

            if (id < 0)
                return sp_part_refuse(p, "merge %zu: '%.*s' is not in the vocabulary", m->n,
                                      (int)(length[i] < 64 ? length[i] : 64), text[i]);
            m->pair[m->n][i] = (uint32_t)id;
        }
    }
    return 0;
}

/* Refuses settings that change ids and are not done. */
static int refuse_settings(const struct sp_part *p)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(p->json, "dropout");

    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        const char *text = "";
        size_t n = 0;
        int err = sp_part_text(p, affixes[i], &text, &n);

        if (err || n)
            return err ? err : sp_part_refuse(p, "\"%s\" is not supported", affixes[i]);
    }
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return sp_part_refuse(p, "\"dropout\" is not supported");
    return 0;
}

static int read_unk(const struct sp_part *p, struct sp_vocabulary *v)
{
    const char *unk = NULL;
    size_t n;
    int err = sp_part_text(p, "unk_token", &unk, &n);

    v->unk = unk ? sp_vocabulary_find(v, unk, n) : -1;
    if (!err && unk && v->unk < 0)
        err = sp_part_refuse(p, "the unk_token '%s' is not in the vocabulary", unk);
    return err;
}

static int read_bpe(const struct sp_part *p, struct sp_tokenizer *t)
{
    struct sp_bpe *b = &t->bpe;
    struct sp_bpe_merges merges = {0};
    size_t bad = 0;
    int err = sp_part_keys(p, "dropout unk_token continuing_subword_prefix end_of_word_suffix "
                              "fuse_unk byte_fallback ignore_merges vocab merges");

    b->vocabulary = &t->vocabulary;
    b->byte_level = t->pretokenizer.byte_level;
    err = err ? err : refuse_settings(p);
    err = err ? err : sp_part_bool(p, "fuse_unk", &b->fuse_unk);
    err = err ? err : sp_part_bool(p, "byte_fallback", &b->byte_fallback);
    err = err ? err : sp_part_bool(p, "ignore_merges", &b->ignore_merges);
    if (!err && b->byte_level && b->byte_fallback)
        err = sp_part_refuse(p, "byte_fallback of a byte-level vocabulary is not supported");
    err = err ? err : read_vocabulary(p, &t->vocabulary);
    err = err ? err : read_unk(p, &t->vocabulary);
    err = err ? err : read_merges(p, &t->vocabulary, &merges);
    if (!err) {
        if (b->byte_level || b->byte_fallback)
            sp_bytes_find(&t->vocabulary, b->byte_level);
        err = sp_bpe_create(b, &merges, &bad);
        if (err == -EINVAL)
            sp_part_refuse(p, "merge %zu makes a token that is not in the vocabulary", bad);
        else if (err)
            no_memory(p);
    }
    free(merges.pair);
    return err;
}

/* ---- Unigram ----------------------------------------------------------------------------------- */

/* [["token", score]]: the place in the list is the id. */
static int read_scores(const struct sp_part *p, struct sp_tokenizer *t)
{
    const json_t *list = json_object_get(p->json, "vocab");
    size_t n = json_array_size(list);
    int err = 0;

    if (!n || n > SP_TOKENIZER_MAX_IDS)
        return sp_part_refuse(p, "\"vocab\" is no list of 1 to %d tokens", SP_TOKENIZER_MAX_IDS);
    t->unigram.score = malloc(n * sizeof *t->unigram.score);
    if (!t->unigram.score || sp_vocabulary_create(&t->vocabulary, (uint32_t)n, n))
        return no_memory(p);
    for (size_t i = 0; !err && i < n; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);

        if (json_array_size(entry) != 2 || !json_is_string(text) || !json_is_number(score))
            return sp_part_refuse(p, "token %zu is no [\"text\", score]", i);
        t->unigram.score[i] = json_number_value(score);
        err = add_entry(p, &t->vocabulary, (uint32_t)i, json_string_value(text),
                        json_string_length(text));
    }
    return err;
}

static int read_unigram(const struct sp_part *p, struct sp_tokenizer *t)
{
    struct sp_unigram *u = &t->unigram;
    int64_t unk = -1;

    SP_TRY(sp_part_keys(p, "unk_id vocab byte_fallback"));
    t->is_unigram = true;
    u->vocabulary = &t->vocabulary;
    if (t->pretokenizer.byte_level)
        return sp_part_refuse(p, "with the pre-tokenizer ByteLevel is not supported");
    SP_TRY(sp_part_int(p, "unk_id", &unk));
    SP_TRY(sp_part_bool(p, "byte_fallback", &u->byte_fallback));
    SP_TRY(read_scores(p, t));
    if (unk < -1 || unk >= (int64_t)t->vocabulary.ids)
        return sp_part_refuse(p, "\"unk_id\" is %lld, of %u tokens", (long long)unk,
                              (unsigned)t->vocabulary.ids);
    t->vocabulary.unk = unk;
    if (u->byte_fallback)
        sp_bytes_find(&t->vocabulary, false);
    return sp_unigram_create(u) ? no_memory(p) : 0;
}

int sp_model_read(struct sp_tokenizer *t, const json_t *json, const char *where)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    struct sp_part p = {json, where, "model", type ? type : ""};

    if (!json_is_object(json))
        return sp_part_refuse(&p, "no object");
    if (!type) /* old files name none */
        type = json_object_get(json, "merges") ? "BPE" : "";
    if (!strcmp(type, "BPE"))
        return read_bpe(&p, t);
    if (!strcmp(type, "Unigram"))
        return read_unigram(&p, t);
    return sp_part_refuse(&p, "BPE and Unigram are supported");
}
