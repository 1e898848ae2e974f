/* Lists the layouts that differ from one in one size. Pure. */
#ifndef SP_MOVES_H
#define SP_MOVES_H

#include "plan/search/grids.h"

typedef void (*sp_move_fn)(void *arg, const struct sp_found *f);

/* Calls `fn` for the layouts from which a search begins, for a schedule on a grid with
 * micro-batches of a size: one with few slices, and one with about as many as there are stages. */
void sp_moves_begin(const struct sp_search *want, const char *schedule, const struct sp_grid *grid,
                    int batch, sp_move_fn fn, void *arg);

/* Calls `fn` for the neighbours of f; for some there may be no plan. `small`: also with slices that
 * are only useful to save memory. */
void sp_moves_from(const struct sp_search *want, const struct sp_found *f, bool small,
                   sp_move_fn fn, void *arg);

#endif
