/* Text to ids: bytes that are no characters, added tokens, normalizers, pieces, words, the model. */
#include "model/tokenizer/parts.h"
#include "model/tokenizer/words.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* A word that was seen, and its ids; a cache line. */
enum { WORD_BYTES = 32, WORD_IDS = 7, WORDS = 1 << 16 };
struct word {
    uint64_t text[4]; /* the bytes of the word, see word_text */
    uint16_t n, ids;  /* n 0: empty */
    uint32_t id[WORD_IDS];
};

struct sp_encoder {
    const struct sp_tokenizer *t;
    struct word *word; /* [WORDS], the last one of every hash */
    struct sp_matcher *matcher;
    struct sp_bpe_room bpe;
    struct sp_unigram_room unigram;
    struct sp_normalizer_room normal;
    struct sp_pretokenizer_room cut;
    bool special;
    struct sp_ids *ids;
};

struct sp_encoder *sp_encoder_create(const struct sp_tokenizer *t)
{
    struct sp_encoder *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->t = t;
    e->word = calloc(WORDS, sizeof *e->word);
    e->matcher = sp_matcher_create();
    e->normal.matcher = e->cut.matcher = e->matcher;
    if (!e->word || !e->matcher) {
        sp_encoder_destroy(e);
        return NULL;
    }
    return e;
}

void sp_encoder_destroy(struct sp_encoder *e)
{
    if (!e)
        return;
    free(e->word);
    sp_matcher_destroy(e->matcher);
    sp_bpe_room_free(&e->bpe);
    free(e->unigram.node);
    free(e->normal.out.at);
    free(e->normal.spare.at);
    sp_pretokenizer_room_free(&e->cut);
    free(e);
}

/* ---- words ------------------------------------------------------------------------------------- */

static int ask_model(struct sp_encoder *e, const char *text, size_t n)
{
    const struct sp_tokenizer *t = e->t;
    int err = t->is_unigram ? sp_unigram_encode(&t->unigram, &e->unigram, text, n, e->ids)
                            : sp_bpe_encode(&t->bpe, &e->bpe, text, n, e->ids);

    if (err == -ENOENT)
        return sp_error(ENOENT,
                        "the tokenizer has no token for a character of the text, and no unk");
    return err ? sp_error(ENOMEM, "no memory to encode %zu bytes of text", n) : 0;
}

/* Its first and last bytes, which overlap in a short word: with its length they are the word. */
static inline void word_text(const char *text, size_t n, uint64_t to[4])
{
    to[1] = to[2] = to[3] = 0;
    if (n > 16) {
        memcpy(to, text, 16);
        memcpy(to + 2, text + n - 16, 16);
    } else if (n >= 8) {
        memcpy(to, text, 8);
        memcpy(to + 1, text + n - 8, 8);
    } else if (n >= 4) {
        uint32_t first, last;

        memcpy(&first, text, 4);
        memcpy(&last, text + n - 4, 4);
        to[0] = (uint64_t)last << 32 | first;
    } else {
        to[0] = (unsigned char)text[0] | (uint64_t)(unsigned char)text[n / 2] << 8 |
                (uint64_t)(unsigned char)text[n - 1] << 16;
    }
}

static inline size_t word_place(const uint64_t text[4], size_t n)
{
    uint64_t h = (text[0] ^ n) * UINT64_C(0x9E3779B97F4A7C15);

    h = (h ^ h >> 32 ^ text[1]) * UINT64_C(0xC2B2AE3D27D4EB4F);
    h = (h ^ h >> 32 ^ text[2]) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 32 ^ text[3]) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return (size_t)(h >> 32) & (WORDS - 1);
}

static inline bool is_same(const struct word *w, const uint64_t text[4], size_t n)
{
    return w->n == n && w->text[0] == text[0] && w->text[1] == text[1] && w->text[2] == text[2] &&
           w->text[3] == text[3];
}

static inline void add_ids(struct sp_ids *ids, const struct word *w)
{
    if (ids->room - ids->n >= WORD_IDS) { /* all of them, which is faster than to count */
        memcpy(ids->id + ids->n, w->id, sizeof w->id);
        ids->n += w->ids;
        return;
    }
    for (int i = 0; i < w->ids; i++)
        sp_ids_add(ids, w->id[i]);
}

/* A word, n > 0. */
static int encode_word(struct sp_encoder *e, const char *text, size_t n)
{
    struct sp_ids *ids = e->ids;
    size_t before = ids->n;
    uint64_t key[4];
    struct word *w;
    int err;

    if (n > WORD_BYTES)
        return ask_model(e, text, n);
    word_text(text, n, key);
    w = &e->word[word_place(key, n)];
    if (is_same(w, key, n)) {
        add_ids(ids, w);
        return 0;
    }
    err = ask_model(e, text, n);
    if (!err && !ids->failed && ids->n - before <= WORD_IDS) {
        w->n = (uint16_t)n;
        w->ids = (uint16_t)(ids->n - before);
        memcpy(w->text, key, sizeof key);
        memcpy(w->id, ids->id + before, (ids->n - before) * sizeof *w->id);
    }
    return err;
}

/* A piece, as words between which no merge is possible, where that can be told. */
static int encode_piece(struct sp_encoder *e, const char *text, size_t n)
{
    const struct sp_bpe *b = &e->t->bpe;
    size_t start = 0, at;
    uint32_t before, c;
    int err = 0;

    if (!b->inside)
        return encode_word(e, text, n);
    at = (size_t)sp_unicode_next(text, &before);
    while (!err && at < n) {
        size_t length = (size_t)sp_unicode_next(text + at, &c);

        if (sp_bpe_apart(b, before, c)) {
            err = encode_word(e, text + start, at - start);
            start = at;
        }
        before = c;
        at += length;
    }
    return err ? err : encode_word(e, text + start, n - start);
}

/* ---- text -------------------------------------------------------------------------------------- */

static int encode_words(struct sp_encoder *e, const char *text, size_t n)
{
    const struct sp_words *words = e->t->words;
    int err = 0;

    for (size_t at = 0; !err && at < n;) {
        size_t end = sp_word_end(words, text, n, at);

        err = encode_word(e, text + at, end - at);
        at = end;
    }
    return err;
}

/* Text with no added tokens in it, in its normal form. */
static int encode_plain(struct sp_encoder *e, const char *text, struct sp_piece p)
{
    const char *of;
    int err;

    if (e->t->words)
        return encode_words(e, text + p.at, p.n);
    err = sp_pretokenizer_run(&e->t->pretokenizer, &e->cut, text, p, &of);
    for (size_t i = 0; !err && i < e->cut.pieces.n; i++)
        err = encode_piece(e, of + e->cut.pieces.piece[i].at, e->cut.pieces.piece[i].n);
    return err;
}

static int encode_added(struct sp_encoder *e, const char *text, struct sp_piece p, bool normalized);

/* Text with no added tokens in it but those that are looked for in its normal form. */
static int encode_normal(struct sp_encoder *e, const char *text, struct sp_piece p)
{
    const struct sp_normalizer *z = &e->t->normalizer;
    int err;

    if (!z->steps)
        return encode_added(e, text, p, true);
    err = sp_normalizer_run(z, &e->normal, text + p.at, p.n, p.continues);
    p.at = 0;
    p.n = e->normal.out.n;
    return err || !p.n ? err : encode_added(e, e->normal.out.at, p, true);
}

/* A piece with added tokens in it, of one of the two kinds. */
static int encode_added(struct sp_encoder *e, const char *text, struct sp_piece p, bool normalized)
{
    struct sp_added_search s = {text + p.at, p.n, normalized, e->special, 0, 0};
    const struct sp_added_token *token;
    size_t behind = 0, begin;
    int err = 0;

    do {
        token = sp_added_next(&e->t->added, &s, &begin);
        if (!token)
            begin = p.n;
        if (begin > behind) {
            struct sp_piece part = {p.at + behind, begin - behind, p.first && !behind,
                                    p.continues && !behind};

            err = normalized ? encode_plain(e, text, part) : encode_normal(e, text, part);
        }
        if (!err && token)
            sp_ids_add(e->ids, token->id);
        behind = s.behind;
    } while (!err && token);
    return err;
}

/* A byte that belongs to no character. */
static int encode_byte(struct sp_encoder *e, unsigned char byte)
{
    static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */
    int64_t id = e->t->vocabulary.byte[byte];

    if (id < 0)
        return ask_model(e, unknown, sizeof unknown - 1);
    sp_ids_add(e->ids, (uint32_t)id);
    return 0;
}

static void add_around(const struct sp_around *a, struct sp_ids *ids)
{
    for (int i = 0; i < a->n; i++)
        sp_ids_add(ids, a->id[i]);
}

int sp_encode(struct sp_encoder *e, const void *text, size_t n, unsigned flags, struct sp_ids *ids)
{
    bool continues = flags & SP_ENCODE_CONTINUED;
    const char *bytes = text;
    int err = 0;

    e->ids = ids;
    e->special = flags & SP_ENCODE_SPECIAL;
    if ((flags & SP_ENCODE_AROUND) && !continues)
        add_around(&e->t->before, ids);
    for (size_t at = 0; !err && at < n;) {
        size_t valid = sp_unicode_valid(bytes + at, n - at);
        bool behind = continues || at;

        if (valid)
            err = encode_added(e, bytes, (struct sp_piece){at, valid, !behind, behind}, false);
        at += valid;
        if (!err && at < n)
            err = encode_byte(e, (unsigned char)bytes[at++]);
    }
    if ((flags & SP_ENCODE_AROUND) && !(flags & SP_ENCODE_UNFINISHED))
        add_around(&e->t->after, ids);
    return !err && ids->failed ? sp_error(ENOMEM, "no memory for the ids of %zu bytes of text", n)
                               : err;
}
