#include "train/groups.h"
#include "sp_error.h"

void sp_groups_shape(const struct sp_group_args *a, struct sp_shape *sh)
{
    sp_shape_context(sh, a->context_parallel, a->context_method == SP_TRAIN_RING);
    sp_shape_share(sh, sp_groups_pipelines(a), a->zero > 0);
}

int sp_groups_check(const char *command, const struct sp_group_args *a, const char *schedule,
                    const struct sp_plan *plan, const struct sp_shape *sh)
{
    int C = a->context_parallel, unit = sp_shape_unit(sh), slices = plan->layout.slices;
    const struct sp_model *m = &sh->model;

    if (C == 1)
        return 0;
    if (!plan->family->shares_tokens)
        return sp_error(EINVAL, "%s: --context-parallel %d is not available for %s; leave it out",
                        command, C, schedule);
    if (!sh->ring && (m->heads % C || (m->kv_heads % C && C % m->kv_heads)))
        return sp_error(EINVAL,
                        "%s: --context-parallel %d: %s has %d heads and %d of keys and values, "
                        "which %d processes cannot share evenly; --context-method ring does not "
                        "share them",
                        command, C, m->name, m->heads, m->kv_heads, C);
    if (sh->seq % unit)
        return sp_error(EINVAL,
                        "%s: --context-parallel %d: sequences of %d tokens are no multiple of %d",
                        command, C, sh->seq, unit);
    if (slices * unit > SP_MAX_SLICES || slices * unit > sh->seq)
        return sp_error(EINVAL,
                        "%s: --context-parallel %d: %d slices have %d parts, at most %d of a "
                        "sequence are possible",
                        command, C, slices, slices * unit,
                        sh->seq < SP_MAX_SLICES ? sh->seq : SP_MAX_SLICES);
    return 0;
}
