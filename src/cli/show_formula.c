/* The published makespan beside the simulated one. */
#include "cli/show.h"
#include <math.h>

bool sp_show_formula(const struct sp_show *show, struct sp_show_formula *f)
{
    static const char *const claims[] = {[SP_EXACT] = "exact",
                                         [SP_LOWER_BOUND] = "lower bound",
                                         [SP_UPPER_BOUND] = "upper bound",
                                         [SP_APPROXIMATE] = "approximate"};
    const struct sp_schedule_def *def = show->plan->def;
    const struct sp_costs *c = show->costs;
    double published = def->makespan ? def->makespan(&show->plan->layout, c->f, c->b, c->w) : -1;
    double simulated = show->times->makespan, difference = simulated - published;

    if (!(published >= 0))
        return false;
    *f = (struct sp_show_formula){.makespan = published,
                                  .source = def->makespan_source ? def->makespan_source : "",
                                  .claim = def->makespan_is <= SP_APPROXIMATE
                                               ? claims[def->makespan_is]
                                               : claims[SP_APPROXIMATE]};
    if (c->comm > 0)
        snprintf(f->verdict, sizeof f->verdict, "without communication");
    else if (fabs(difference) <= 1e-9 * fmax(published, 1))
        snprintf(f->verdict, sizeof f->verdict, "simulated the same");
    else if (published > 0)
        snprintf(f->verdict, sizeof f->verdict, "simulated %.2g %% %s",
                 100 * fabs(difference) / published, difference > 0 ? "above" : "below");
    return true;
}
