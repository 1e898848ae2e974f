/*
 * The tensors of a stage that actions name (policies/lowering): those that its ops left for others,
 * those that it received, and those that it keeps for later readers.
 */
#ifndef SP_STORE_H
#define SP_STORE_H

#include "policies/lowering/tensor.h"
#include "sinks/tensor.h"

struct sp_stored {
    struct sp_tensor_id id;
    int n;
    struct sp_tensor **piece; /* [n] NULL: the model has no such block */
    bool pooled;              /* each is held; otherwise they are a stage's blocks */
    struct sp_stored *next;
};

enum { SP_STORE_LISTS = 64 };

struct sp_store {
    struct sp_stored *list[SP_STORE_LISTS]; /* by hash; each list has the oldest first */
};

/* Adds a tensor. If its pieces are from a pool, the store takes over the caller's hold. A tensor
 * may be in the store more than once: find returns the oldest, drop drops the latest. */
void sp_store_put(struct sp_store *s, const struct sp_tensor_id *id, int n,
                  struct sp_tensor *const *piece, bool pooled);

/* NULL: not in the store. */
const struct sp_stored *sp_store_find(const struct sp_store *s, const struct sp_tensor_id *id);

/* The next entry of the same tensor; NULL: none. */
const struct sp_stored *sp_store_next(const struct sp_stored *t);

/* To be called when the readers of a tensor have been submitted. Does nothing if it is not
 * there. */
void sp_store_drop(struct sp_store *s, const struct sp_tensor_id *id);

void sp_store_clear(struct sp_store *s);

#endif
