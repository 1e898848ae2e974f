/*
 * The tensors of a stage that actions name (policies/lowering): what its ops left for others, what it
 * received, what it keeps for readers to come.
 */
#ifndef SP_STORE_H
#define SP_STORE_H

#include "policies/lowering/tensor.h"
#include "sinks/tensor.h"

struct sp_stored {
    struct sp_tensor_id id;
    int n;
    struct sp_tensor **piece; /* [n] NULL: the model has no such block */
    bool pooled;              /* each is held; otherwise they are somebody's blocks */
    struct sp_stored *next;
};

enum { SP_STORE_LISTS = 64 };

struct sp_store {
    struct sp_stored *list[SP_STORE_LISTS]; /* by a hash, each oldest first */
};

/* Adds a tensor; what a pool gave is held by the caller, whose hold the store takes over. A tensor may be
 * there more than once: the oldest is found, the latest dropped. */
void sp_store_put(struct sp_store *s, const struct sp_tensor_id *id, int n,
                  struct sp_tensor *const *piece, bool pooled);

/* NULL: it is not there. */
const struct sp_stored *sp_store_find(const struct sp_store *s, const struct sp_tensor_id *id);

/* The next one of the same tensor, NULL: there is none. */
const struct sp_stored *sp_store_next(const struct sp_stored *t);

/* The readers of a tensor have been submitted. Nothing if it is not there. */
void sp_store_drop(struct sp_store *s, const struct sp_tensor_id *id);

void sp_store_clear(struct sp_store *s);

#endif
