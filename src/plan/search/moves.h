/*
 * Grids: ways to deal a machine's devices out to stages, to the devices of a stage, and to
 * pipelines. Moves: the layouts that differ from one in one size. Pure.
 */
#ifndef SP_MOVES_H
#define SP_MOVES_H

#include "plan/search/found.h"

/* stages * tensor * context * data devices. */
struct sp_grid {
    int stages, tensor, context, data;
};

/* Lists all grids that `want` allows: the devices of a stage are within a node or fill several;
 * those that share parameters are within one. The caller frees the array; *n is its length. NULL:
 * no memory. */
struct sp_grid *sp_grids(const struct sp_search *want, int *n);

/* Puts a layout on a grid; pipelines share the optimizer's state unless `want` says otherwise. */
void sp_grid_take(const struct sp_search *want, const struct sp_grid *grid, struct sp_found *f);

/* True if `want` allows a grid. */
bool sp_grid_is_one(const struct sp_search *want, const struct sp_grid *grid);

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
