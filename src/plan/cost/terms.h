/* What the ops of a plan are computed with. */
#ifndef SP_TERMS_H
#define SP_TERMS_H

#include "plan/machine/machine.h"
#include "model/stash.h"

struct sp_op_terms {
    const struct sp_machine *machine;
    int devices; /* of a stage */
    enum sp_recompute recompute;
    int every; /* layers between those whose inputs are kept, with full recomputation */
    const int *
        process; /* [stages] NULL: each stage has its own; those of one hand tensors on without a copy */
};

#endif
