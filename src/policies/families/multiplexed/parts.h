/* The tokens of parts of slices. */
#ifndef SP_MULTIPLEX_PARTS_H
#define SP_MULTIPLEX_PARTS_H

#include "policies/plan.h"

/* struct sp_shared_slices: cut. 0, or -EINVAL, -ENOMEM after one line. */
int sp_multiplex_cut_parts(struct sp_plan *plan, double token, double pair);

#endif
