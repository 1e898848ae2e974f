/* Ways to deal a machine's devices out to stages, to the devices of a stage, and to pipelines.
 * Pure. */
#ifndef SP_GRIDS_H
#define SP_GRIDS_H

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

#endif
