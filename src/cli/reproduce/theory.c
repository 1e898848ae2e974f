#include "cli/reproduce/run.h"
#include "policies/families/activations.h"
#include "policies/plan_create.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/listsim.h"
#include "sp_error.h"
#include <errno.h>
#include <math.h>

static int plan_of(const struct sp_theory *t, struct sp_plan *plan)
{
    struct sp_layout lay = {.stages = t->stages,
                            .micro_batches = t->micro_batches,
                            .chunks = t->chunks,
                            .slices = t->slices ? t->slices : 1,
                            .layers = t->layers,
                            .options = ""};

    return sp_plan_create(t->schedule, &lay, plan);
}

int sp_theory_run(const struct sp_theory *t, struct sp_theory_result *result)
{
    struct sp_costs costs = {.f = 1, .b = 1};
    struct sp_plan plan;
    struct sp_times times;
    char why[256] = "";
    int err = plan_of(t, &plan);

    if (err)
        return err;
    err = t->costs ? sp_costs_parse(t->costs, &plan, &costs) : 0;
    costs.comm = t->comm;
    if (!err && t->recompute == SP_RECOMPUTE_NO_ATTENTION)
        sp_costs_add_recompute(&plan, false, &costs);
    if (!err && sp_listsim(&plan, &costs, SP_PAIRED, &times, why, sizeof why))
        err = sp_error(EINVAL, "reproduce: %s", why);
    if (!err) {
        *result = (struct sp_theory_result){
            .makespan = times.makespan, .bubble = times.bubble_ratio, .messages = times.messages};
        for (int s = 0; s < t->stages; s++) {
            result->busy = fmax(result->busy, times.busy[s]);
            result->peak = fmax(result->peak, times.peak_live[s] *
                                                  sp_activation_share(plan.family, &plan.layout));
        }
        sp_times_destroy(&times);
    }
    sp_plan_destroy(&plan);
    return err;
}

int sp_theory_activations(const struct sp_theory *t, const struct sp_shape *shape, int stage,
                          double *bytes)
{
    struct sp_plan plan;
    int err = plan_of(t, &plan);

    if (err)
        return err;
    *bytes = (double)sp_stash_peak(&plan, shape, t->recompute, 1, stage);
    sp_plan_destroy(&plan);
    return 0;
}
