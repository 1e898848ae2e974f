#include "sp_grow.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/vocabulary.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 40, /* symbols of a word for which looking at all pairs is faster than a heap */
    INSIDE_BITS = 1 << 20 /* of the set of pairs */
};
#define LAST UINT32_MAX

void sp_bpe_room_free(struct sp_bpe_room *r)
{
    free(r->symbol);
    free(r->heap);
    free(r->text.at);
    *r = (struct sp_bpe_room){0};
}

/* Bytes that are printable characters of Latin-1 stand for themselves, the others, 0 to 0x20, 0x7f to 0xa0 and 0xad,
 * for U+0100 and on in turn. */
enum { LOW = 0x21, HIGH = 0x7f, HIGH_END = 0xa1, SOFT_HYPHEN = 0xad, MOVED = 0x100 };

uint32_t sp_byte_char(unsigned char b)
{
    if (b < LOW)
        return MOVED + (uint32_t)b;
    if (b >= HIGH && b < HIGH_END)
        return MOVED + LOW + (uint32_t)b - HIGH;
    return b == SOFT_HYPHEN ? MOVED + LOW + HIGH_END - HIGH : b;
}

int sp_byte_of_char(uint32_t c)
{
    if (c >= MOVED + LOW + HIGH_END - HIGH)
        return c == MOVED + LOW + HIGH_END - HIGH ? SOFT_HYPHEN : -1;
    if (c >= MOVED + LOW)
        return (int)(c - MOVED - LOW + HIGH);
    if (c >= MOVED)
        return (int)(c - MOVED);
    return sp_byte_char((unsigned char)c) == c ? (int)c : -1;
}

/* ---- what was learnt --------------------------------------------------------------------------- */

static uint32_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);

    return (uint32_t)(h >> 32);
}

/* The slot that the pair is in, or the empty one that it would be in. */
static struct sp_merge *slot_of(const struct sp_bpe *b, uint32_t left, uint32_t right)
{
    uint32_t s = hash_pair(left, right) & (b->slots - 1);

    while (b->merge[s].left != UINT32_MAX &&
           (b->merge[s].left != left || b->merge[s].right != right))
        s = (s + 1) & (b->slots - 1);
    return &b->merge[s];
}

static const struct sp_merge *find_merge(const struct sp_bpe *b, uint32_t left, uint32_t right)
{
    const struct sp_merge *m = slot_of(b, left, right);

    return m->left == UINT32_MAX ? NULL : m;
}

/* The id of the two texts together; -1: there is none, -ENOMEM - 1: no memory. */
static int64_t id_of_both(const struct sp_vocabulary *v, const uint32_t pair[2])
{
    size_t n, m;
    const char *left = sp_vocabulary_text(v, pair[0], &n),
               *right = sp_vocabulary_text(v, pair[1], &m);
    struct sp_bytes both = {0};
    int64_t id;

    sp_bytes_add(&both, left, n);
    sp_bytes_add(&both, right, m);
    id = both.failed ? -ENOMEM - 1 : both.n ? sp_vocabulary_find(v, both.at, both.n) : -1;
    free(both.at);
    return id;
}

static uint32_t inside_bit(uint32_t left, uint32_t right)
{
    return hash_pair(left + 1, right) & (INSIDE_BITS - 1);
}

/* Which characters are neighbours in a token of the vocabulary. */
static int find_inside(struct sp_bpe *b)
{
    const struct sp_vocabulary *v = b->vocabulary;

    b->inside = calloc(INSIDE_BITS / 64, sizeof *b->inside);
    if (!b->inside)
        return -ENOMEM;
    for (uint32_t id = 0; id < v->ids; id++) {
        uint32_t before = 0, c = 0;
        size_t n = 0, length;
        const char *text = sp_vocabulary_text(v, id, &n);

        for (size_t at = 0; at < n; at += length) {
            length = (size_t)sp_unicode_next(text + at, &c);
            if (at)
                b->inside[inside_bit(before, c) / 64] |= UINT64_C(1) << inside_bit(before, c) % 64;
            before = c;
        }
    }
    return 0;
}

void sp_bytes_find(struct sp_vocabulary *v, bool byte_level)
{
    for (int i = 0; i < 256; i++) {
        char text[8];
        int n = byte_level ? sp_unicode_encode(sp_byte_char((unsigned char)i), text)
                           : snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);

        v->byte[i] = sp_vocabulary_find(v, text, (size_t)n);
    }
}

bool sp_bytes_known(const struct sp_vocabulary *v, const char *bytes, size_t n)
{
    bool known = true;

    for (size_t i = 0; known && i < n; i++)
        known = v->byte[(unsigned char)bytes[i]] >= 0;
    return known;
}

static bool is_byte_or_unk(const struct sp_bpe *b, uint32_t id)
{
    bool found = b->vocabulary->unk == (int64_t)id;

    for (int i = 0; i < 256 && b->byte_fallback; i++)
        found |= b->vocabulary->byte[i] == (int64_t)id;
    return found;
}

int sp_bpe_create(struct sp_bpe *b, const struct sp_bpe_merges *merges, size_t *bad)
{
    bool apart = !b->byte_level;

    b->slots = 16;
    while (b->slots < 2 * merges->n)
        b->slots *= 2;
    b->merge = malloc(b->slots * sizeof *b->merge);
    if (!b->merge)
        return -ENOMEM;
    memset(b->merge, 0xff, b->slots * sizeof *b->merge);
    for (size_t i = 0; i < merges->n; i++) {
        const uint32_t *pair = merges->pair[i];
        int64_t id = id_of_both(b->vocabulary, pair);

        *bad = i;
        if (id < 0)
            return id == -1 ? -EINVAL : -ENOMEM;
        *slot_of(b, pair[0], pair[1]) =
            (struct sp_merge){pair[0], pair[1], (uint32_t)i, (uint32_t)id};
        apart = apart && !is_byte_or_unk(b, pair[0]) && !is_byte_or_unk(b, pair[1]);
    }
    return apart ? find_inside(b) : 0;
}

void sp_bpe_destroy(struct sp_bpe *b)
{
    free(b->merge);
    free(b->inside);
    b->merge = NULL;
    b->inside = NULL;
}

bool sp_bpe_apart(const struct sp_bpe *b, uint32_t left, uint32_t right)
{
    uint32_t bit = inside_bit(left, right);
    char text[4];

    return b->inside && !(b->inside[bit / 64] >> bit % 64 & 1) &&
           sp_vocabulary_find(b->vocabulary, text, (size_t)sp_unicode_encode(left, text)) >= 0 &&
           sp_vocabulary_find(b->vocabulary, text, (size_t)sp_unicode_encode(right, text)) >= 0;
}

/* ---- a word ------------------------------------------------------------------------------------ */

/* The symbols that a word begins as, at most n; -1 without memory. */
static ptrdiff_t begin_word(const struct sp_bpe *b, struct sp_bpe_room *r, const char *word,
                            size_t n)
{
    const struct sp_vocabulary *v = b->vocabulary;
    struct sp_bpe_symbol *s;
    size_t count = 0, length;
    bool unknown = false; /* an unk is to come, which those that follow may be part of */

    if (!sp_grow(&r->symbol, n + 1, &r->symbols, sizeof *r->symbol))
        return -1;
    s = r->symbol;
    for (size_t at = 0; at < n; at += length) {
        int64_t id;

        length = b->byte_level ? 1 : (size_t)sp_unicode_length(word[at]);
        id = b->byte_level ? v->byte[(unsigned char)word[at]]
                           : sp_vocabulary_find(v, word + at, length);
        if (id >= 0) {
            if (unknown)
                s[count++].id = (uint32_t)v->unk;
            unknown = false;
            s[count++].id = (uint32_t)id;
            continue;
        }
        if (b->byte_fallback && sp_bytes_known(v, word + at, length)) {
            for (size_t i = 0; i < length; i++)
                s[count++].id = (uint32_t)v->byte[(unsigned char)word[at + i]];
            continue;
        }
        if (v->unk < 0)
            continue;
        if (unknown && !b->fuse_unk)
            s[count++].id = (uint32_t)v->unk;
        unknown = true;
    }
    if (unknown)
        s[count++].id = (uint32_t)v->unk;
    return (ptrdiff_t)count;
}

/* Looks at all pairs for every merge. Returns how many symbols are left. */
static size_t merge_few(const struct sp_bpe *b, struct sp_bpe_symbol *s, size_t n)
{
    const struct sp_merge *merge[FEW];

    for (size_t i = 0; i + 1 < n; i++)
        merge[i] = find_merge(b, s[i].id, s[i + 1].id);
    for (;;) {
        const struct sp_merge *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++)
            if (merge[i] && (!best || merge[i]->rank < best->rank)) {
                best = merge[i];
                at = i;
            }
        if (!best)
            return n;
        s[at].id = best->id;
        memmove(s + at + 1, s + at + 2, (n - at - 2) * sizeof *s);
        memmove(merge + at, merge + at + 1, (n - at - 2) * sizeof *merge);
        n--;
        if (at)
            merge[at - 1] = find_merge(b, s[at - 1].id, s[at].id);
        if (at + 1 < n)
            merge[at] = find_merge(b, s[at].id, s[at + 1].id);
    }
}

/* Adds the pair of the symbol at `at` and the next one, if it was learnt. */
static bool push_pair(const struct sp_bpe *b, struct sp_bpe_room *r, uint32_t at)
{
    const struct sp_bpe_symbol *s = &r->symbol[at];
    const struct sp_merge *m = s->next == LAST ? NULL : find_merge(b, s->id, r->symbol[s->next].id);
    size_t i = r->pairs;
    struct sp_bpe_pair pair;

    if (!m)
        return true;
    if (!sp_grow(&r->heap, r->pairs + 1, &r->pair_room, sizeof *r->heap))
        return false;
    pair = (struct sp_bpe_pair){(uint64_t)m->rank << 32 | at, m->left, m->right, m->id};
    r->pairs++;
    for (; i && r->heap[(i - 1) / 2].order > pair.order; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = pair;
    return true;
}

static struct sp_bpe_pair pop_pair(struct sp_bpe_room *r)
{
    struct sp_bpe_pair first = r->heap[0], moved = r->heap[--r->pairs];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < r->pairs) {
        if (child + 1 < r->pairs && r->heap[child + 1].order < r->heap[child].order)
            child++;
        if (r->heap[child].order >= moved.order)
            break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = moved;
    return first;
}

/* With a heap of pairs; those whose symbols were merged in the meantime are passed over. */
static ptrdiff_t merge_many(const struct sp_bpe *b, struct sp_bpe_room *r, size_t n)
{
    struct sp_bpe_symbol *s = r->symbol;
    size_t count = 0;

    r->pairs = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].previous = i ? (uint32_t)i - 1 : LAST;
        s[i].next = i + 1 < n ? (uint32_t)i + 1 : LAST;
    }
    for (size_t i = 0; i < n; i++)
        if (!push_pair(b, r, (uint32_t)i))
            return -1;
    while (r->pairs) {
        struct sp_bpe_pair pair = pop_pair(r);
        uint32_t at = (uint32_t)pair.order, next = s[at].next;

        if (next == LAST || s[at].id != pair.left || s[next].id != pair.right)
            continue;
        s[at].id = pair.id;
        s[at].next = s[next].next;
        s[next].id = UINT32_MAX; /* no pair has it */
        s[next].next = LAST;
        if (s[at].next != LAST)
            s[s[at].next].previous = at;
        if (!push_pair(b, r, at) || (s[at].previous != LAST && !push_pair(b, r, s[at].previous)))
            return -1;
    }
    for (uint32_t i = n ? 0 : LAST; i != LAST;) {
        uint32_t next = s[i].next;

        s[count++].id = s[i].id;
        i = next;
    }
    return (ptrdiff_t)count;
}

/* The id of the whole word, which ignore_merges takes before any merge; -1: it is no token. */
static int64_t whole_word(const struct sp_bpe *b, struct sp_bpe_room *r, const char *word, size_t n)
{
    if (!b->byte_level)
        return sp_vocabulary_find(b->vocabulary, word, n);
    r->text.n = 0;
    for (size_t i = 0; i < n; i++)
        sp_bytes_add_char(&r->text, sp_byte_char((unsigned char)word[i]));
    return r->text.failed ? -1 : sp_vocabulary_find(b->vocabulary, r->text.at, r->text.n);
}

int sp_bpe_encode(const struct sp_bpe *b, struct sp_bpe_room *r, const char *word, size_t n,
                  struct sp_ids *ids)
{
    int64_t whole = b->ignore_merges ? whole_word(b, r, word, n) : -1;
    ptrdiff_t count;

    if (whole >= 0)
        return sp_ids_add(ids, (uint32_t)whole) ? 0 : -ENOMEM;
    if (n >= LAST)
        return -ENOMEM;
    count = begin_word(b, r, word, n);
    if (count > 1)
        count = count <= FEW ? (ptrdiff_t)merge_few(b, r->symbol, (size_t)count)
                             : merge_many(b, r, (size_t)count);
    for (ptrdiff_t i = 0; i < count; i++)
        sp_ids_add(ids, r->symbol[i].id);
    return count < 0 || ids->failed || r->text.failed ? -ENOMEM : 0;
}
