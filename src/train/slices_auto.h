/* How many slices a sequence is best cut into. */
#ifndef SP_SLICES_AUTO_H
#define SP_SLICES_AUTO_H

#include "plan/solver.h"
#include "train/options.h"

/* What the layout options ask the solver for. 0; or -EINVAL after one line that begins with the command. */
int sp_slices_request(const char *command, const struct sp_layout_args *l,
                      const struct sp_model *model, struct sp_solver_request *want);

/* The line where nothing could be tried although there are layers enough. -EINVAL. */
int sp_slices_refuse_parts(const char *command, const struct sp_solver_request *want);

/* --slices auto: as many slices as `plan` would take with these stages on `on`, NULL: cores of this
 * machine, within --memory-limit. Left alone if it is a number. 0; or -EINVAL after one line that begins
 * with the command. */
int sp_slices_auto(const char *command, struct sp_layout_args *a, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_cluster *on);

#endif
