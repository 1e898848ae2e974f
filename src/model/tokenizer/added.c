#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/vocabulary.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

static int read_token(const struct sp_part *p, struct sp_added_token *t)
{
    const char *content = NULL;
    int64_t id = -1;

    SP_TRY(sp_part_keys(p, "id content single_word lstrip rstrip normalized special"));
    SP_TRY(sp_part_int(p, "id", &id));
    SP_TRY(sp_part_text(p, "content", &content, &t->n));
    SP_TRY(sp_part_bool(p, "single_word", &t->single_word));
    SP_TRY(sp_part_bool(p, "lstrip", &t->lstrip));
    SP_TRY(sp_part_bool(p, "rstrip", &t->rstrip));
    SP_TRY(sp_part_bool(p, "normalized", &t->normalized));
    SP_TRY(sp_part_bool(p, "special", &t->special));
    if (id < 0 || id >= SP_TOKENIZER_MAX_IDS)
        return sp_part_refuse(p, "the id %lld is not below %d", (long long)id,
                              SP_TOKENIZER_MAX_IDS);
    if (!content || !t->n)
        return sp_part_refuse(p, "the token with id %lld has no content", (long long)id);
    t->id = (uint32_t)id;
    t->content = malloc(t->n + 1);
    t->found = malloc(t->n + 1);
    if (!t->content || !t->found)
        return sp_error(ENOMEM, "%s: no memory for an added token", p->where);
    memcpy(t->content, content, t->n + 1);
    memcpy(t->found, content, t->n + 1);
    t->found_n = t->n;
    return 0;
}

static int compare_ids(const void *x, const void *y)
{
    const struct sp_added_token *a = x, *b = y;

    return a->id < b->id ? -1 : a->id > b->id;
}

int sp_added_read(struct sp_added *a, const json_t *list, const char *where)
{
    size_t n = json_array_size(list);
    struct sp_part p = {NULL, where, "added_tokens", ""};
    int err = 0;

    if (list && !json_is_null(list) && !json_is_array(list))
        return sp_part_refuse(&p, "no list");
    a->token = calloc(n + 1, sizeof *a->token);
    if (!a->token)
        return sp_error(ENOMEM, "%s: no memory for added tokens", where);
    for (; !err && a->n < n; a->n++) {
        p.json = json_array_get(list, a->n);
        err = json_is_object(p.json) ? read_token(&p, &a->token[a->n])
                                     : sp_part_refuse(&p, "no list of objects");
    }
    qsort(a->token, a->n, sizeof *a->token, compare_ids);
    for (size_t i = 1; !err && i < a->n; i++)
        if (a->token[i].id == a->token[i - 1].id)
            err = sp_part_refuse(&p, "two tokens have id %u", (unsigned)a->token[i].id);
    return err;
}

int sp_added_index(struct sp_added *a)
{
    struct sp_trie_text *texts = malloc((a->n + 1) * sizeof *texts);
    int err = texts ? 0 : -ENOMEM;

    for (int normalized = 0; !err && normalized < 2; normalized++) {
        size_t n = 0;

        for (size_t i = 0; i < a->n; i++)
            if (a->token[i].normalized == normalized && a->token[i].found_n) {
                texts[n++] =
                    (struct sp_trie_text){a->token[i].found, a->token[i].found_n, (uint32_t)i};
            }
        err = sp_trie_create(&a->trie[normalized], texts, n);
    }
    free(texts);
    return err;
}

void sp_added_destroy(struct sp_added *a)
{
    for (size_t i = 0; a->token && i < a->n; i++) {
        free(a->token[i].content);
        free(a->token[i].found);
    }
    free(a->token);
    sp_trie_destroy(&a->trie[0]);
    sp_trie_destroy(&a->trie[1]);
}

const struct sp_added_token *sp_added_of(const struct sp_added *a, uint32_t id)
{
    const struct sp_added_token key = {.id = id};

    return a->n ? bsearch(&key, a->token, a->n, sizeof key, compare_ids) : NULL;
}

/* The longest one that begins at `at`; NULL: none. */
static const struct sp_added_token *longest_at(const struct sp_added *a,
                                               const struct sp_added_search *s, size_t at)
{
    const struct sp_trie *trie = &a->trie[s->normalized];
    const struct sp_added_token *found = NULL;
    uint32_t node = 0;

    while (at < s->n) {
        node = sp_trie_step(trie, node, (unsigned char)s->text[at++]);
        if (!node)
            break;
        if (trie->value[node] != UINT32_MAX)
            found = &a->token[trie->value[node]];
    }
    return found;
}

/* The place at which the character before `at` > 0 begins. */
static size_t character_before(const char *text, size_t at)
{
    do
        at--;
    while (((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

static bool is_word_at(const struct sp_added_search *s, size_t at)
{
    uint32_t c;

    sp_unicode_next(s->text + at, &c);
    return sp_unicode_is_word(c);
}

static size_t skip_space(const struct sp_added_search *s, size_t at)
{
    while (at < s->n) {
        uint32_t c;
        int length = sp_unicode_next(s->text + at, &c);

        if (!sp_unicode_is_space(c))
            break;
        at += (size_t)length;
    }
    return at;
}

static size_t skip_space_back(const struct sp_added_search *s, size_t at)
{
    while (at > s->behind) {
        size_t start = character_before(s->text, at);
        uint32_t c;

        sp_unicode_next(s->text + start, &c);
        if (!sp_unicode_is_space(c))
            break;
        at = start;
    }
    return at;
}

const struct sp_added_token *sp_added_next(const struct sp_added *a, struct sp_added_search *s,
                                           size_t *begin)
{
    const struct sp_trie *trie = &a->trie[s->normalized];

    if (trie->nodes == 1)
        return NULL;
    while (s->at < s->n) {
        const struct sp_added_token *t;
        size_t from = s->at, to;

        while (from < s->n && !trie->root[(unsigned char)s->text[from]])
            from++;
        t = from < s->n ? longest_at(a, s, from) : NULL;
        if (!t) {
            s->at = from + 1;
            continue;
        }
        to = s->at = from + t->found_n;
        if (t->special && !s->special)
            continue;
        if (t->single_word && ((from && is_word_at(s, character_before(s->text, from))) ||
                               (to < s->n && is_word_at(s, to))))
            continue;
        *begin = t->lstrip ? skip_space_back(s, from) : from;
        s->behind = t->rstrip ? skip_space(s, to) : to;
        return t;
    }
    return NULL;
}
