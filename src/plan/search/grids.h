/* How the devices of a machine can be dealt out to stages, to what shares a stage, and to pipelines. Pure. */
#ifndef SP_GRIDS_H
#define SP_GRIDS_H

#include "plan/search/found.h"

/* stages * tensor * context * data devices. */
struct sp_grid {
    int stages, tensor, context, data;
};

/* All that `want` leaves open: the devices of a stage are within a node, or fill several; those that share parameters are
 * within one. To be freed; *n of them. NULL: no memory. */
struct sp_grid *sp_grids(const struct sp_search *want, int *n);

/* Puts a layout on a grid, with the optimizer's state shared out unless `want` says otherwise. */
void sp_grid_take(const struct sp_search *want, const struct sp_grid *grid, struct sp_found *f);

/* True if a grid is one of these. */
bool sp_grid_is_one(const struct sp_search *want, const struct sp_grid *grid);

#endif
