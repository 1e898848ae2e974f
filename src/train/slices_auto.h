/* Chooses how many slices a sequence is cut into, and whether stages share slices at both ends. */
#ifndef SP_SLICES_AUTO_H
#define SP_SLICES_AUTO_H

#include "plan/machine/machine.h"
#include "model/shape.h"
#include "train/options.h"

/* True if there is anything to choose. */
bool sp_slices_are_auto(const struct sp_layout_args *a);

/*
 * --slices auto: the number of slices that a search (plan/search/search.h) finds best with these
 * stages, each on a device of the machine, within --memory-limit, or else within `memory` bytes of
 * a stage (0: no limit). A number stays as it is. --schedule sppo:multiplex=auto: `sppo`, or
 * `sppo:multiplex` if that is predicted to be faster and fits. 0; or -EINVAL after one line that
 * begins with the command.
 */
int sp_slices_auto(const char *command, struct sp_layout_args *a, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_machine *machine, int64_t memory);

#endif
