/* From a layout to those that differ from it in one size. Pure. */
#ifndef SP_MOVES_H
#define SP_MOVES_H

#include "plan/search/grids.h"

typedef void (*sp_move_fn)(void *arg, const struct sp_found *f);

/* The layouts of a schedule on a grid, with micro-batches of a size, from which a search begins: with few slices, and
 * with about as many as there are stages. */
void sp_moves_begin(const struct sp_search *want, const char *schedule, const struct sp_grid *grid,
                    int batch, sp_move_fn fn, void *arg);

/* The neighbours of f, of which some may be none that there can be a plan of. `small`: with slices, too, as only memory
 * asks for them. */
void sp_moves_from(const struct sp_search *want, const struct sp_found *f, bool small,
                   sp_move_fn fn, void *arg);

#endif
