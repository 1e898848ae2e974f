/*
 * Finds places at which text may be cut so that threads encode the parts. A place counts if nothing that a tokenizer does depends on
 * both sides of it:
 *
 *     a space behind a printable character of ASCII:   the cat| sat
 *     behind a newline that alone is between words:    the cat\n|sat
 */
#include "model/tokenizer/parts.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* Changes characters by themselves, or with marks that follow them. */
static bool is_local(const struct sp_normalizer_step *s)
{
    switch (s->kind) {
    case SP_NORMALIZE_NFC:
    case SP_NORMALIZE_NFD:
    case SP_NORMALIZE_NFKC:
    case SP_NORMALIZE_NFKD:
    case SP_NORMALIZE_LOWERCASE:
    case SP_NORMALIZE_STRIP_ACCENTS:
    case SP_NORMALIZE_PREPEND:  /* not where a text continues */
    case SP_NORMALIZE_CHARSMAP: /* a grapheme, which a space is by itself */
        return true;
    case SP_NORMALIZE_REPLACE:
        return sp_regex_is_character(s->replace.from);
    default:
        return false;
    }
}

/* True if a token reaches across such a place, or looks across it. */
static bool holds_place(const struct sp_added_token *t, bool newline)
{
    for (size_t i = 1; i < t->n; i++) {
        const char *c = t->content + i;

        if (newline ? c[-1] == '\n' : *c == ' ' && c[-1] > ' ' && c[-1] <= '~')
            return true;
    }
    return newline && t->single_word && memchr(t->content, '\n', t->n);
}

static bool tokens_allow(const struct sp_tokenizer *t, bool newline, bool rewritten)
{
    for (size_t i = 0; i < t->added.n; i++) {
        const struct sp_added_token *token = &t->added.token[i];

        if (holds_place(token, newline) || (newline ? token->lstrip : token->rstrip) ||
            (token->normalized && rewritten))
            return false;
    }
    return true;
}

/* Is a space always the beginning of a piece, or between pieces? */
static bool pieces_end_at_space(const struct sp_pretokenizer *z)
{
    for (int i = 0; i < z->steps; i++) {
        const struct sp_pretokenizer_step *s = &z->step[i];

        if (s->spaces && !s->splits)
            return false;
        if (!s->splits)
            continue;
        if (s->kind == SP_SPLIT_WORDS || s->spaces)
            return true;
        if (s->kind != SP_SPLIT_CHARACTERS || s->behavior == SP_SPLIT_MERGED_WITH_PREVIOUS ||
            s->behavior == SP_SPLIT_MERGED_WITH_NEXT)
            return false;
        if (sp_split_is(s, ' ') && s->behavior == SP_SPLIT_REMOVED)
            return true;
    }
    return false;
}

/* The characters that "x " becomes; false: it is not two. */
static bool normal_pair(const struct sp_tokenizer *t, struct sp_normalizer_room *r, char x,
                        uint32_t c[2])
{
    const char text[2] = {x, ' '};
    bool quiet = sp_error_quiet(true); /* what fails is said when text is encoded */
    int err = sp_normalizer_run(&t->normalizer, r, text, sizeof text, true);
    size_t at;

    sp_error_quiet(quiet);
    if (err || r->out.n < 2)
        return false;
    at = (size_t)sp_unicode_next(r->out.at, &c[0]);
    return at < r->out.n && at + (size_t)sp_unicode_next(r->out.at + at, &c[1]) == r->out.n;
}

/* True if the model has no token across the two, where no pre-tokenizer cuts between them. */
static bool model_parts(const struct sp_tokenizer *t, const uint32_t c[2])
{
    const struct sp_pretokenizer *z = &t->pretokenizer;
    uint32_t spaces = z->steps ? z->step->spaces : 0;

    if (t->is_unigram || z->steps > 1 || (z->steps && (!spaces || z->step->splits)))
        return false;
    return sp_bpe_apart(&t->bpe, c[0], c[1] == ' ' && spaces ? spaces : c[1]);
}

int sp_cut_prepare(struct sp_tokenizer *t)
{
    struct sp_normalizer_room room = {0};
    bool local = true, composes = true, rewritten = false, pieces;

    for (int i = 0; i < t->normalizer.steps; i++) {
        const struct sp_normalizer_step *s = &t->normalizer.step[i];

        local &= is_local(s);
        composes &= s->kind <= SP_NORMALIZE_LOWERCASE /* a form, or lower case */;
        rewritten |= s->kind == SP_NORMALIZE_REPLACE || s->kind == SP_NORMALIZE_PREPEND ||
                     s->kind == SP_NORMALIZE_CHARSMAP;
    }
    t->cut_at_newline = t->words && composes && tokens_allow(t, true, rewritten);
    if (!local || !tokens_allow(t, false, rewritten))
        return 0;
    pieces = pieces_end_at_space(&t->pretokenizer);
    for (char x = '!'; x <= '~'; x++) {
        uint32_t c[2];

        if (normal_pair(t, &room, x, c))
            t->cut_at_space[(int)x] =
                pieces ? c[1] == ' ' && !sp_unicode_is_space(c[0]) : model_parts(t, c);
    }
    free(room.out.at);
    free(room.spare.at);
    return room.out.failed || room.spare.failed ? sp_error(ENOMEM, "no memory for a tokenizer") : 0;
}

/* True if a character that is no white space ends before `at`, or begins there. */
static bool is_ink_before(const char *text, size_t at)
{
    for (size_t length = 1; length <= 4 && length <= at; length++) {
        uint32_t c;

        if (((unsigned char)text[at - length] & 0xc0) != 0x80)
            return sp_unicode_decode(text + at - length, length, &c) == (int)length &&
                   !sp_unicode_is_space(c);
    }
    return false;
}

static bool is_ink_at(const char *text, size_t n, size_t at)
{
    uint32_t c;

    return at < n && sp_unicode_decode(text + at, n - at, &c) && !sp_unicode_is_space(c);
}

size_t sp_tokenizer_cut(const struct sp_tokenizer *t, const void *text, size_t n, size_t from)
{
    const char *s = text;

    for (size_t at = from ? from : 1; at < n; at++) {
        unsigned char before = (unsigned char)s[at - 1];

        if (s[at] == ' ' && before < 0x80 && t->cut_at_space[before])
            return at;
        if (before == '\n' && t->cut_at_newline && is_ink_at(s, n, at) && is_ink_before(s, at - 1))
            return at;
    }
    return n;
}
