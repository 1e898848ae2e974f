#include "train/groups.h"

void sp_groups_shape(const struct sp_group_args *a, struct sp_shape *sh)
{
    sp_shape_context(sh, a->context_parallel, a->context_method == SP_TRAIN_RING);
    sp_shape_share(sh, sp_groups_pipelines(a), a->zero > 0);
}
