/* The machine and the recompute mode at which the ops of a plan are priced. */
#ifndef SP_TERMS_H
#define SP_TERMS_H

#include "plan/machine/machine.h"
#include "model/stash.h"

struct sp_op_terms {
    const struct sp_machine *machine;
    int devices; /* of a stage */
    enum sp_recompute recompute;
    int every; /* full recomputation keeps the input of each every-th layer */
    const int *
        process; /* [stages] NULL: one for each stage; a process passes on tensors without copies */
};

#endif
