/* How many slices a sequence is best cut into. */
#ifndef SP_SLICES_AUTO_H
#define SP_SLICES_AUTO_H

#include "plan/machine/machine.h"
#include "model/shape.h"
#include "train/options.h"

/*
 * --slices auto: as many slices as a search (plan/search/search.h) finds best with these stages, each on a device
 * of the machine, within --memory-limit, or `memory` bytes of a stage where that is not given (0: any). Left
 * alone if it is a number. 0; or -EINVAL after one line that begins with the command.
 */
int sp_slices_auto(const char *command, struct sp_layout_args *a, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_machine *machine, int64_t memory);

#endif
