#include "model/tokenizer/vocabulary.h"
#define XXH_INLINE_ALL
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int sp_vocabulary_create(struct sp_vocabulary *v, uint32_t ids, size_t entries)
{
    *v = (struct sp_vocabulary){.ids = ids, .slots = 16, .unk = -1};
    memset(v->byte, 0xff, sizeof v->byte);
    while (v->slots < 2 * entries)
        v->slots *= 2;
    v->entry = malloc((ids + (size_t)1) * sizeof *v->entry);
    v->slot = malloc(v->slots * sizeof *v->slot);
    if (!v->entry || !v->slot) {
        sp_vocabulary_destroy(v);
        return -ENOMEM;
    }
    memset(v->entry, 0xff, (ids + (size_t)1) * sizeof *v->entry);
    memset(v->slot, 0xff, v->slots * sizeof *v->slot);
    return 0;
}

void sp_vocabulary_destroy(struct sp_vocabulary *v)
{
    free(v->entry);
    free(v->slot);
    free(v->text);
    *v = (struct sp_vocabulary){0};
}

/* The slot that the text is in, or the empty one that it would be in. */
static uint32_t slot_of(const struct sp_vocabulary *v, const char *text, size_t n)
{
    uint32_t s = (uint32_t)XXH3_64bits(text, n) & (v->slots - 1);

    while (v->slot[s] != UINT32_MAX) {
        const struct sp_entry *e = &v->entry[v->slot[s]];

        if (e->n == n && !memcmp(v->text + e->at, text, n))
            break;
        s = (s + 1) & (v->slots - 1);
    }
    return s;
}

int sp_vocabulary_add(struct sp_vocabulary *v, uint32_t id, const char *text, size_t n)
{
    if (v->entry[id].at != UINT32_MAX)
        return -EEXIST;
    if (v->room - v->used < n + 1) {
        size_t room = 2 * v->room + n + 4096;
        char *grown = room < UINT32_MAX ? realloc(v->text, room) : NULL;

        if (!grown)
            return -ENOMEM;
        v->text = grown;
        v->room = room;
    }
    memcpy(v->text + v->used, text, n);
    v->text[v->used + n] = '\0';
    v->entry[id] = (struct sp_entry){(uint32_t)v->used, (uint32_t)n};
    v->used += n + 1;
    v->slot[slot_of(v, text, n)] = id;
    return 0;
}

int64_t sp_vocabulary_find(const struct sp_vocabulary *v, const char *text, size_t n)
{
    uint32_t id = v->slot[slot_of(v, text, n)];

    return id == UINT32_MAX ? -1 : (int64_t)id;
}

const char *sp_vocabulary_text(const struct sp_vocabulary *v, uint32_t id, size_t *n)
{
    if (id >= v->ids || v->entry[id].at == UINT32_MAX)
        return NULL;
    *n = v->entry[id].n;
    return v->text + v->entry[id].at;
}

/* ---- the tree ---------------------------------------------------------------------------------- */

static int compare_texts(const void *x, const void *y)
{
    const struct sp_trie_text *a = x, *b = y;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);

    if (order || a->n != b->n)
        return order ? order : a->n < b->n ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* Texts of the sorted list that share the bytes which lead to a node. */
struct range {
    uint32_t from, to;
    uint32_t depth;
};

/* Gives a node its value and its children, which come behind all nodes so far. */
static void add_children(struct sp_trie *t, struct range *range, const struct sp_trie_text *texts,
                         uint32_t node)
{
    struct range r = range[node];

    for (; r.from < r.to && texts[r.from].n == r.depth; r.from++)
        t->value[node] = texts[r.from].value;
    t->child[node] = t->nodes;
    while (r.from < r.to) {
        unsigned char byte = (unsigned char)texts[r.from].text[r.depth];
        uint32_t to = r.from + 1;

        while (to < r.to && (unsigned char)texts[to].text[r.depth] == byte)
            to++;
        t->byte[t->nodes] = byte;
        t->value[t->nodes] = UINT32_MAX;
        range[t->nodes++] = (struct range){r.from, to, r.depth + 1};
        r.from = to;
    }
}

int sp_trie_create(struct sp_trie *t, struct sp_trie_text *texts, size_t n)
{
    size_t most = 2;
    struct range *range;

    *t = (struct sp_trie){.nodes = 1};
    for (size_t i = 0; i < n; i++)
        most += texts[i].n;
    if (n)
        qsort(texts, n, sizeof *texts, compare_texts);
    range = malloc(most * sizeof *range);
    t->child = malloc(most * sizeof *t->child);
    t->byte = malloc(most);
    t->value = malloc(most * sizeof *t->value);
    if (!range || !t->child || !t->byte || !t->value) {
        free(range);
        sp_trie_destroy(t);
        return -ENOMEM;
    }
    range[0] = (struct range){0, (uint32_t)n, 0};
    t->value[0] = UINT32_MAX;
    t->byte[0] = 0;
    for (uint32_t node = 0; node < t->nodes; node++)
        add_children(t, range, texts, node);
    t->child[t->nodes] = t->nodes;
    for (uint32_t k = t->child[0]; t->nodes > 1 && k < t->child[1]; k++)
        t->root[t->byte[k]] = k;
    free(range);
    return 0;
}

void sp_trie_destroy(struct sp_trie *t)
{
    free(t->child);
    free(t->byte);
    free(t->value);
    *t = (struct sp_trie){0};
}

uint32_t sp_trie_step(const struct sp_trie *t, uint32_t node, unsigned char byte)
{
    uint32_t from, to;

    if (!node)
        return t->root[byte];
    from = t->child[node];
    to = t->child[node + 1];
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;

        if (t->byte[middle] == byte)
            return middle;
        if (t->byte[middle] < byte)
            from = middle + 1;
        else
            to = middle;
    }
    return 0;
}
