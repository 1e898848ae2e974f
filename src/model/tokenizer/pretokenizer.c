#include "sp_grow.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/words.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

/* Takes over what the step holds. */
static int add_step(const struct sp_part *p, struct sp_pretokenizer *z,
                    struct sp_pretokenizer_step s)
{
    if (z->byte_level && !z->mapped && z->steps < SP_PRETOKENIZER_STEPS) {
        z->mapped = true;
        z->step[z->steps++] = (struct sp_pretokenizer_step){.maps = true};
    }
    if (z->steps == SP_PRETOKENIZER_STEPS) {
        sp_regex_destroy(s.pattern);
        return sp_part_refuse(p, "more than %d steps", SP_PRETOKENIZER_STEPS);
    }
    z->step[z->steps++] = s;
    return 0;
}

static int read_behavior(const struct sp_part *p, struct sp_pretokenizer_step *s)
{
    static const char words[] = /* in the order of the enum */
        "Isolated Removed MergedWithPrevious MergedWithNext Contiguous";
    int behavior = SP_SPLIT_ISOLATED, err = sp_part_word(p, "behavior", words, &behavior);

    s->behavior = (enum sp_split_behavior)behavior;
    return err;
}

static int read_byte_level(const struct sp_part *p, void *to)
{
    struct sp_pretokenizer *z = to;
    struct sp_pretokenizer_step s = {.kind = SP_SPLIT_WORDS, .words = &sp_words_gpt2};
    bool prefix = true;

    SP_TRY(sp_part_keys(p, "add_prefix_space trim_offsets use_regex"));
    s.splits = true;
    SP_TRY(sp_part_bool(p, "add_prefix_space", &prefix));
    SP_TRY(sp_part_bool(p, "use_regex", &s.splits));
    if (z->byte_level)
        return sp_part_refuse(p, "a second one is not supported");
    s.prefix = prefix ? SP_PREFIX_ALWAYS : SP_PREFIX_NEVER;
    if (s.splits || prefix)
        SP_TRY(add_step(p, z, s));
    z->byte_level = true;
    return 0;
}

static bool is_number(uint32_t c)
{
    return sp_unicode_class(c) == SP_CHAR_NUMBER;
}

static struct sp_pretokenizer_step split_by(bool (*is)(uint32_t c), enum sp_split_behavior behavior)
{
    return (struct sp_pretokenizer_step){
        .splits = true, .kind = SP_SPLIT_CHARACTERS, .behavior = behavior, .is = is};
}

static struct sp_pretokenizer_step split_at(uint32_t c, enum sp_split_behavior behavior)
{
    return (struct sp_pretokenizer_step){
        .splits = true, .kind = SP_SPLIT_CHARACTERS, .behavior = behavior, .c = c};
}

static int read_metaspace(const struct sp_part *p, void *to)
{
    struct sp_pretokenizer_step s;
    uint32_t replacement = 0x2581;
    int scheme = -1;
    bool prefix = true, splits = true;

    SP_TRY(sp_part_keys(p, "replacement add_prefix_space prepend_scheme split str_rep"));
    SP_TRY(sp_part_char(p, "replacement", &replacement));
    SP_TRY(sp_part_bool(p, "add_prefix_space", &prefix));
    SP_TRY(sp_part_word(p, "prepend_scheme", "never first always", &scheme));
    SP_TRY(sp_part_bool(p, "split", &splits));
    if (!prefix && scheme > 0)
        return sp_part_refuse(p, "\"add_prefix_space\" and \"prepend_scheme\" contradict");
    s = split_at(replacement, SP_SPLIT_MERGED_WITH_NEXT);
    s.splits = splits;
    s.spaces = replacement;
    s.prefix = scheme >= 0 ? (enum sp_pretokenizer_prefix)scheme
               : prefix    ? SP_PREFIX_ALWAYS
                           : SP_PREFIX_NEVER;
    return add_step(p, to, s);
}

/* The known patterns, matched by hand where all that they find is a piece. */
static const struct sp_words *words_of(const struct sp_pretokenizer_step *s, const char *pattern)
{
    return s->behavior == SP_SPLIT_ISOLATED || (s->behavior == SP_SPLIT_REMOVED && s->invert)
               ? sp_words_of(pattern)
               : NULL;
}

static int read_split(const struct sp_part *p, void *to)
{
    struct sp_pretokenizer_step s = {.splits = true, .kind = SP_SPLIT_PATTERN};
    struct sp_pattern pattern;

    SP_TRY(sp_part_keys(p, "pattern behavior invert"));
    SP_TRY(sp_part_pattern(p, "pattern", &pattern));
    SP_TRY(read_behavior(p, &s));
    SP_TRY(sp_part_bool(p, "invert", &s.invert));
    s.words = pattern.regex ? words_of(&s, pattern.text) : NULL;
    if (!s.words) {
        SP_TRY(sp_regex_of(p, &pattern, &s.pattern));
    } else {
        s.kind = SP_SPLIT_WORDS;
        s.behavior = SP_SPLIT_ISOLATED;
        s.invert = false;
    }
    return add_step(p, to, s);
}

static int read_digits(const struct sp_part *p, void *to)
{
    bool single = false;

    SP_TRY(sp_part_bool(p, "individual_digits", &single));
    return add_step(p, to, split_by(is_number, single ? SP_SPLIT_ISOLATED : SP_SPLIT_CONTIGUOUS));
}

/* \w+|[^\w\s]+ of the regular expressions of Rust, whose words have the joiners too. */
static int read_whitespace(const struct sp_part *p, void *to)
{
    static const char pattern[] = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";
    struct sp_pretokenizer_step s = {
        .splits = true, .kind = SP_SPLIT_PATTERN, .behavior = SP_SPLIT_REMOVED, .invert = true};

    SP_TRY(sp_regex_create(pattern, sizeof pattern - 1, p->where, &s.pattern));
    return add_step(p, to, s);
}

static int read_whitespace_split(const struct sp_part *p, void *to)
{
    return add_step(p, to, split_by(sp_unicode_is_space, SP_SPLIT_REMOVED));
}

static int read_punctuation(const struct sp_part *p, void *to)
{
    struct sp_pretokenizer_step s = split_by(sp_unicode_is_punctuation, SP_SPLIT_ISOLATED);

    SP_TRY(read_behavior(p, &s));
    return add_step(p, to, s);
}

static int read_bert(const struct sp_part *p, void *to)
{
    SP_TRY(read_whitespace_split(p, to));
    return add_step(p, to, split_by(sp_unicode_is_punctuation, SP_SPLIT_ISOLATED));
}

static int read_delimiter(const struct sp_part *p, void *to)
{
    uint32_t delimiter = UINT32_MAX;

    SP_TRY(sp_part_char(p, "delimiter", &delimiter));
    return add_step(p, to, split_at(delimiter, SP_SPLIT_REMOVED));
}

int sp_pretokenizer_read(struct sp_pretokenizer *z, const json_t *json, const char *where)
{
    static const struct sp_part_type types[] = {
        {"ByteLevel", read_byte_level},         {"Split", read_split},
        {"Metaspace", read_metaspace},          {"Digits", read_digits},
        {"Whitespace", read_whitespace},        {"WhitespaceSplit", read_whitespace_split},
        {"Punctuation", read_punctuation},      {"BertPreTokenizer", read_bert},
        {"CharDelimiterSplit", read_delimiter}, {NULL, NULL},
    };
    const struct sp_part p = {json, where, "pre_tokenizer", ""};

    return sp_part_read(&p, "pretokenizers", types, z);
}

void sp_pretokenizer_destroy(struct sp_pretokenizer *z)
{
    for (int i = 0; i < z->steps; i++)
        sp_regex_destroy(z->step[i].pattern);
}

void sp_pretokenizer_room_free(struct sp_pretokenizer_room *r)
{
    free(r->text.at);
    free(r->spare.at);
    free(r->pieces.piece);
    free(r->spare_pieces.piece);
    free(r->found.piece);
}

const struct sp_words *sp_pretokenizer_words(const struct sp_pretokenizer *z)
{
    const struct sp_pretokenizer_step *s = z->step;

    return z->steps == 1 && !s->maps && !s->spaces && !s->prefix && s->splits ? s->words : NULL;
}

/* ---- pieces ------------------------------------------------------------------------------------ */

static void add_piece(struct sp_pieces *p, struct sp_piece piece)
{
    p->failed = p->failed || !sp_grow(&p->piece, p->n + 1, &p->room, sizeof piece);
    if (!p->failed)
        p->piece[p->n++] = piece;
}

/* A part of a piece; one without text is none. */
static void add_part(struct sp_pieces *p, const struct sp_piece *of, size_t at, size_t end)
{
    bool begins = at == of->at;

    if (at < end)
        add_piece(p, (struct sp_piece){at, end - at, of->first && begins, of->continues && begins});
}

/* Finds the next match in a piece from `at` on. 1: match[0] .. match[1] - 1; 0: nothing; or -errno. */
static int find_next(const struct sp_pretokenizer_step *s, struct sp_matcher *m, const char *text,
                     size_t n, size_t at, size_t match[2])
{
    if (s->kind == SP_SPLIT_PATTERN)
        return sp_regex_find(s->pattern, m, text, n, at, match);
    for (size_t length; at < n; at += length) {
        uint32_t c;

        length = (size_t)sp_unicode_next(text + at, &c);
        if (sp_split_is(s, c)) {
            match[0] = at;
            match[1] = at + length;
            return 1;
        }
    }
    return 0;
}

/* All that is found in text[n], and what is between. */
static int find_all(const struct sp_pretokenizer_step *s, struct sp_pretokenizer_room *r,
                    const char *text, size_t n)
{
    size_t at = 0, covered = 0, match[2];
    bool any = false;
    int found = 1;

    r->found.n = 0;
    while (at <= n) {
        found = find_next(s, r->matcher, text, n, at, match);
        if (found <= 0)
            break;
        at = sp_regex_behind(text, n, match);
        if (match[0] == match[1] && any && match[0] == covered)
            continue; /* of no length: once at a place, and not behind another */
        any = true;
        if (covered < match[0])
            add_piece(&r->found, (struct sp_piece){covered, match[0] - covered, s->invert, false});
        add_piece(&r->found, (struct sp_piece){match[0], match[1] - match[0], !s->invert, false});
        covered = match[1];
    }
    if (covered < n)
        add_piece(&r->found, (struct sp_piece){covered, n - covered, s->invert, false});
    return found < 0 ? found : 0;
}

/* True if part i belongs to the part before it. */
static bool is_merged(enum sp_split_behavior behavior, const struct sp_piece *found, size_t i)
{
    if (behavior == SP_SPLIT_MERGED_WITH_PREVIOUS)
        return found[i].first && !found[i - 1].first;
    if (behavior == SP_SPLIT_MERGED_WITH_NEXT)
        return found[i - 1].first && !found[i].first;
    return behavior == SP_SPLIT_CONTIGUOUS && found[i].first == found[i - 1].first;
}

static int split_piece(const struct sp_pretokenizer_step *s, struct sp_pretokenizer_room *r,
                       const char *text, const struct sp_piece *piece)
{
    const struct sp_piece *found;
    size_t at = piece->at, end = piece->at + piece->n, start = 0;
    int err;

    if (s->kind == SP_SPLIT_WORDS) {
        while (at < end) {
            size_t next = sp_word_end(s->words, text, end, at);

            add_part(&r->spare_pieces, piece, at, next);
            at = next;
        }
        return 0;
    }
    err = find_all(s, r, text + at, piece->n);
    found = r->found.piece;
    for (size_t i = 0; !err && i < r->found.n; i++) {
        size_t stop = found[i].at + found[i].n;

        if (!i || !is_merged(s->behavior, found, i))
            start = found[i].at;
        if (i + 1 < r->found.n && is_merged(s->behavior, found, i + 1))
            continue;
        if (s->behavior != SP_SPLIT_REMOVED || !found[i].first)
            add_part(&r->spare_pieces, piece, at + start, at + stop);
    }
    return err;
}

/* The bytes again that the characters of a text stand for. */
static void unmap(const char *text, const char *end, struct sp_bytes *out)
{
    while (text < end) {
        uint32_t c;

        text += sp_unicode_next(text, &c);
        sp_bytes_add(out, &(char){(char)sp_byte_of_char(c)}, 1);
    }
}

/* Appends what the text of a piece becomes. */
static void change_piece(const struct sp_pretokenizer_step *s, const char *text,
                         const struct sp_piece *p, struct sp_bytes *out)
{
    const char *end = text + p->at + p->n;
    uint32_t prefix = s->spaces ? s->spaces : ' ', first = prefix;

    text += p->at;
    if (s->unmaps) {
        unmap(text, end, out);
        return;
    }
    if (s->maps) {
        for (; text < end; text++)
            sp_bytes_add_char(out, sp_byte_char((unsigned char)*text));
        return;
    }
    if (p->n)
        sp_unicode_next(text, &first);
    if (first == ' ')
        first = prefix;
    if (first != prefix && !p->continues &&
        (s->prefix == SP_PREFIX_ALWAYS || (s->prefix == SP_PREFIX_FIRST && p->first)))
        sp_bytes_add_char(out, prefix);
    while (text < end) {
        const char *space = s->spaces ? memchr(text, ' ', (size_t)(end - text)) : NULL;
        const char *stop = space ? space : end;

        sp_bytes_add(out, text, (size_t)(stop - text));
        if (space)
            sp_bytes_add_char(out, s->spaces);
        text = stop + (space != NULL);
    }
}

/* Changes the text of all pieces; returns the new one. */
static const char *change_text(const struct sp_pretokenizer_step *s, struct sp_pretokenizer_room *r,
                               const char *text)
{
    struct sp_bytes out = r->spare;

    out.n = 0;
    for (size_t i = 0; i < r->pieces.n; i++) {
        struct sp_piece *p = &r->pieces.piece[i];
        size_t at = out.n;

        change_piece(s, text, p, &out);
        p->at = at;
        p->n = out.n - at;
    }
    r->spare = r->text;
    r->text = out;
    return out.at;
}

int sp_pretokenizer_run(const struct sp_pretokenizer *z, struct sp_pretokenizer_room *r,
                        const char *text, struct sp_piece whole, const char **of)
{
    size_t n = whole.n;
    int err = 0;

    r->pieces.n = 0;
    add_piece(&r->pieces, whole);
    for (int i = 0; !err && i < z->steps; i++) {
        const struct sp_pretokenizer_step *s = &z->step[i];
        struct sp_pieces pieces;

        if (s->maps || s->spaces || s->prefix)
            text = change_text(s, r, text);
        if (!s->splits)
            continue;
        r->spare_pieces.n = 0;
        for (size_t k = 0; !err && k < r->pieces.n; k++)
            err = split_piece(s, r, text, &r->pieces.piece[k]);
        pieces = r->pieces;
        r->pieces = r->spare_pieces;
        r->spare_pieces = pieces;
    }
    if (!err && z->mapped)
        text = change_text(&(struct sp_pretokenizer_step){.unmaps = true}, r, text);
    *of = text;
    if (!err && (r->text.failed || r->spare.failed || r->pieces.failed || r->spare_pieces.failed ||
                 r->found.failed))
        err = sp_error(ENOMEM, "no memory to cut %zu bytes of text", n);
    return err;
}
