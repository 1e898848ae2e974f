#include "policies/families/family.h"
#include "policies/plan.h"
#include "sp_error.h"
#include <string.h>

double sp_activation_share(const struct sp_family *family, const struct sp_layout *lay)
{
    return (double)lay->stages / family->activations(lay);
}

int sp_run_deps(const struct sp_plan *plan, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    const struct sp_family *family = plan->family;

    return family->run_deps ? family->run_deps(&plan->layout, stage, op, out)
                            : family->deps(&plan->layout, stage, op, out);
}

int sp_family_refuse(const struct sp_plan *plan, const struct sp_train_wish *wish)
{
    const struct sp_family *family = plan->family;
    int err = family->refuse ? family->refuse(plan, wish) : 0;

    if (err)
        return err;
    if (!family->partitions && strcmp(wish->partition, "even"))
        return sp_error(EINVAL,
                        "train: --partition %s: %s deals the layers out by itself; use even",
                        wish->partition, plan->def->name);
    if (wish->post_validation && !(family->post_validates && family->post_validates(&plan->layout)))
        return sp_error(EINVAL, "train: --post-validation is not available for %s; leave it out",
                        plan->def->name);
    return 0;
}
