#include "train/groups.h"

void sp_groups_shape(const struct sp_group_args *a, struct sp_shape *sh)
{
    sp_shape_tensor(sh, a->tensor_parallel, a->sequence_parallel == SP_TRAIN_SEQUENCE_ON);
    sp_shape_context(sh, a->context_parallel, a->context_method == SP_TRAIN_RING);
    sp_shape_share(sh, a->data_parallel * a->context_parallel, a->zero > 0);
}
