#include "sp_grow.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/vocabulary.h"
#include "model/try.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* By how much a character that is in no token scores less than the worst token. */
#define UNK_PENALTY 10.0

int sp_unigram_create(struct sp_unigram *u)
{
    const struct sp_vocabulary *v = u->vocabulary;
    struct sp_trie_text *texts = malloc((v->ids + (size_t)1) * sizeof *texts);
    size_t n = 0;
    int err;

    if (!texts)
        return -ENOMEM;
    for (uint32_t id = 0; id < v->ids; id++) {
        const char *text = sp_vocabulary_text(v, id, &texts[n].n);

        texts[n].text = text;
        texts[n].value = id;
        n += text && texts[n].n;
        u->least = !id || u->score[id] < u->least ? u->score[id] : u->least;
    }
    err = sp_trie_create(&u->trie, texts, n);
    free(texts);
    return err;
}

void sp_unigram_destroy(struct sp_unigram *u)
{
    sp_trie_destroy(&u->trie);
    free(u->score);
    u->score = NULL;
}

static void offer_way(struct sp_unigram_node *to, double score, uint32_t start, uint32_t id)
{
    if (to->start == UINT32_MAX || score > to->score)
        *to = (struct sp_unigram_node){score, id, start};
}

/* The best way to every place of the text. */
static int find_ways(const struct sp_unigram *u, struct sp_unigram_node *node, const char *text,
                     size_t n)
{
    node[0] = (struct sp_unigram_node){0};
    for (size_t i = 1; i <= n; i++)
        node[i].start = UINT32_MAX;
    for (size_t start = 0, length; start < n; start += length) {
        double here = node[start].score;
        bool single = false; /* its first character is a token */
        uint32_t at = 0;

        length = (size_t)sp_unicode_length(text[start]);
        for (size_t end = start; end < n;) {
            uint32_t id;

            at = sp_trie_step(&u->trie, at, (unsigned char)text[end++]);
            if (!at)
                break;
            id = u->trie.value[at];
            if (id == UINT32_MAX)
                continue;
            offer_way(&node[end], u->score[id] + here, (uint32_t)start, id);
            single |= end - start == length;
        }
        if (single)
            continue;
        if (u->vocabulary->unk < 0)
            return -ENOENT;
        offer_way(&node[start + length], u->least - UNK_PENALTY + here, (uint32_t)start,
                  (uint32_t)u->vocabulary->unk);
    }
    return 0;
}

/* A part of the text on the best way, characters without a token that follow each other being one. */
static void add_part(const struct sp_unigram *u, const char *text, size_t n, struct sp_ids *ids)
{
    const struct sp_vocabulary *v = u->vocabulary;
    int64_t id = sp_vocabulary_find(v, text, n);

    if (id >= 0 || !u->byte_fallback || !sp_bytes_known(v, text, n)) {
        sp_ids_add(ids, (uint32_t)(id < 0 ? v->unk : id));
        return;
    }
    for (size_t i = 0; i < n; i++)
        sp_ids_add(ids, (uint32_t)v->byte[(unsigned char)text[i]]);
}

int sp_unigram_encode(const struct sp_unigram *u, struct sp_unigram_room *r, const char *text,
                      size_t n, struct sp_ids *ids)
{
    int64_t unk = u->vocabulary->unk;
    struct sp_unigram_node *node;
    uint32_t next = 0;

    if (n >= UINT32_MAX)
        return -ENOMEM;
    if (!sp_grow(&r->node, n + 1, &r->nodes, sizeof *node))
        return -ENOMEM;
    node = r->node;
    SP_TRY(find_ways(u, node, text, n));
    /* From the end: where each part of the way ends. */
    for (uint32_t end = (uint32_t)n, start; end; end = start) {
        start = node[end].start;
        node[start].score = end; /* which is no longer needed */
    }
    for (uint32_t start = 0; start < n; start = next) {
        next = (uint32_t)node[start].score;
        while (unk >= 0 && node[next].id == (uint32_t)unk && next < n &&
               node[(uint32_t)node[next].score].id == (uint32_t)unk)
            next = (uint32_t)node[next].score;
        add_part(u, text + start, next - start, ids);
    }
    return ids->failed ? -ENOMEM : 0;
}
