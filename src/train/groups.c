#include "train/groups.h"
#include "sp_error.h"

void sp_groups_shape(const struct sp_group_args *a, struct sp_shape *sh)
{
    sp_shape_tensor(sh, a->tensor_parallel, a->sequence_parallel == SP_TRAIN_SEQUENCE_ON);
    sp_shape_context(sh, a->context_parallel, a->context_method == SP_TRAIN_RING);
    sp_shape_share(sh, a->data_parallel * a->context_parallel, a->zero > 0);
}

int sp_groups_check(const char *command, const struct sp_group_args *a)
{
    if (a->context_method == SP_TRAIN_RING && a->context_parallel == 1)
        return sp_error(EINVAL, "%s: --context-method ring without --context-parallel C", command);
    if (a->sequence_parallel == SP_TRAIN_SEQUENCE_OFF && a->tensor_parallel == 1)
        return sp_error(EINVAL, "%s: --sequence-parallel off without --tensor-parallel T", command);
    return 0;
}
