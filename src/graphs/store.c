#include "graphs/store.h"
#include "sinks/pool.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

void sp_store_put(struct sp_store *s, const struct sp_tensor_id *id, int n,
                  struct sp_tensor *const *piece, bool pooled)
{
    struct sp_stored **at = &s->list[sp_tensor_hash(id, SP_STORE_LISTS)];
    struct sp_stored *stored = malloc(sizeof *stored + (size_t)n * sizeof *piece);

    SP_NEED(stored, "no memory for a tensor of %d parts", n);
    while (*at)
        at = &(*at)->next;
    *stored = (struct sp_stored){.id = *id, .n = n, .pooled = pooled};
    stored->piece = (struct sp_tensor **)(stored + 1);
    memcpy(stored->piece, piece, (size_t)n * sizeof *piece);
    *at = stored;
}

static const struct sp_stored *first_of(const struct sp_stored *at, const struct sp_tensor_id *id)
{
    while (at && !sp_tensor_is_same(&at->id, id))
        at = at->next;
    return at;
}

const struct sp_stored *sp_store_find(const struct sp_store *s, const struct sp_tensor_id *id)
{
    return first_of(s->list[sp_tensor_hash(id, SP_STORE_LISTS)], id);
}

const struct sp_stored *sp_store_next(const struct sp_stored *t)
{
    return first_of(t->next, &t->id);
}

/* Removes a tensor from its list, and gives pooled pieces back. */
static void drop(struct sp_stored **at)
{
    struct sp_stored *stored = *at;

    *at = stored->next;
    for (int i = 0; stored->pooled && i < stored->n; i++)
        if (stored->piece[i])
            sp_pool_put(stored->piece[i]);
    free(stored);
}

void sp_store_drop(struct sp_store *s, const struct sp_tensor_id *id)
{
    struct sp_stored **latest = NULL;

    for (struct sp_stored **at = &s->list[sp_tensor_hash(id, SP_STORE_LISTS)]; *at;
         at = &(*at)->next)
        if (sp_tensor_is_same(&(*at)->id, id))
            latest = at;
    if (latest)
        drop(latest);
}

void sp_store_clear(struct sp_store *s)
{
    for (int i = 0; i < SP_STORE_LISTS; i++)
        while (s->list[i])
            drop(&s->list[i]);
}
