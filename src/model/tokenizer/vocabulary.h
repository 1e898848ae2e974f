/* Texts with ids: a vocabulary, found by text or by id; and a tree of texts, which finds those that a text begins with. */
#ifndef SP_TOKENIZER_VOCABULARY_H
#define SP_TOKENIZER_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_vocabulary {
    uint32_t ids; /* one above the largest */
    struct sp_entry {
        uint32_t at, n; /* in `text`; at UINT32_MAX: no text has this id */
    } * entry;          /* [ids] */
    char *text;
    size_t used, room;
    uint32_t *slot, slots; /* ids by the hash of their text; UINT32_MAX: empty */
    int64_t unk;           /* the token of what has none; -1: none */
    int64_t byte[256];     /* the tokens that stand for bytes; -1: none */
};

/* For so many entries with ids below `ids`, without unk and bytes. 0 or -ENOMEM. */
int sp_vocabulary_create(struct sp_vocabulary *v, uint32_t ids, size_t entries);
void sp_vocabulary_destroy(struct sp_vocabulary *v);
/* 0; -EEXIST: the id has a text; or -ENOMEM. A text that is added twice is found by its last id. */
int sp_vocabulary_add(struct sp_vocabulary *v, uint32_t id, const char *text, size_t n);
/* The id of text[n]; -1: none. */
int64_t sp_vocabulary_find(const struct sp_vocabulary *v, const char *text, size_t n);
/* The text of an id; NULL: none. */
const char *sp_vocabulary_text(const struct sp_vocabulary *v, uint32_t id, size_t *n);

struct sp_trie {
    uint32_t nodes;
    uint32_t *child;     /* [nodes + 1] children of node k: child[k] .. child[k + 1] - 1, by byte */
    unsigned char *byte; /* [nodes] that leads to it */
    uint32_t *value;     /* [nodes] of the text that ends there; UINT32_MAX: none */
    uint32_t root[256];  /* the node of a first byte; 0: none */
};
struct sp_trie_text {
    const char *text;
    size_t n;
    uint32_t value;
};

/* Takes n texts, none empty, which are sorted here; of equal ones the last counts. 0 or -ENOMEM. */
int sp_trie_create(struct sp_trie *t, struct sp_trie_text *texts, size_t n);
void sp_trie_destroy(struct sp_trie *t);
/* The child of a node, which is 0 at first, by a byte; 0: none. */
uint32_t sp_trie_step(const struct sp_trie *t, uint32_t node, unsigned char byte);

#endif
