/* The costs of the list simulation, and the published makespan to compare with the simulated
 * one. */
#include "cli/show/show.h"
#include <math.h>

/* Negative: nothing is published for this layout. */
static double published_makespan(const struct sp_show *show)
{
    const struct sp_schedule_def *def = show->plan->def;
    const struct sp_costs *c = &show->prediction->costs;

    if (def->makespan_of_parts && show->plan->family->facts.parts)
        return def->makespan_of_parts(&show->plan->layout, &c->parts);
    return def->makespan ? def->makespan(&show->plan->layout, c->f, c->b, c->w) : -1;
}

bool sp_show_formula(const struct sp_show *show, struct sp_show_formula *f)
{
    static const char *const claims[] = {[SP_EXACT] = "exact",
                                         [SP_LOWER_BOUND] = "lower bound",
                                         [SP_UPPER_BOUND] = "upper bound",
                                         [SP_APPROXIMATE] = "approximate"};
    const struct sp_schedule_def *def = show->plan->def;
    const struct sp_costs *c = &show->prediction->costs;
    double published = published_makespan(show);
    double simulated = show->prediction->times.makespan, difference = simulated - published;

    if (!(published >= 0) || show->machine) /* no formula takes costs of single ops */
        return false;
    *f = (struct sp_show_formula){.makespan = published,
                                  .source = def->makespan_source ? def->makespan_source : "",
                                  .claim = def->makespan_is <= SP_APPROXIMATE
                                               ? claims[def->makespan_is]
                                               : claims[SP_APPROXIMATE]};
    if (show->plan->slice_share)
        f->claim = "for equal slices";
    if (show->plan->family->lowers->run_deps && !show->plan->family->facts.shares_attention)
        /* published in lockstep, which not all workers have to keep */
        f->claim = claims[SP_UPPER_BOUND];
    if (show->execution)
        snprintf(f->verdict, sizeof f->verdict, "in order, at times as planned");
    else if (c->head > 0 || show->plan->layout.vocabulary_parallel)
        snprintf(f->verdict, sizeof f->verdict, "without a head of its own");
    else if (c->comm > 0 || c->wire > 0)
        snprintf(f->verdict, sizeof f->verdict, "without communication");
    else if (fabs(difference) <= 1e-9 * fmax(published, 1))
        snprintf(f->verdict, sizeof f->verdict, "simulated the same");
    else if (published > 0)
        snprintf(f->verdict, sizeof f->verdict, "simulated %.2g %% %s",
                 100 * fabs(difference) / published, difference > 0 ? "above" : "below");
    return true;
}

/* Names the groups that share a step or a stage. */
static void groups_text(const struct sp_shape *sh, char *text, size_t n)
{
    int pipelines = sh->pipelines / sh->context, used = 0;

    *text = '\0';
    if (pipelines > 1)
        used = snprintf(text, n, ", %d pipelines", pipelines);
    if (sh->tensor > 1)
        used +=
            snprintf(text + used, n - (size_t)used, ", %d devices a stage, parameters %sshared out",
                     sh->tensor, sh->sequence ? "and tokens " : "");
    if (sh->context > 1)
        snprintf(text + used, n - (size_t)used, ", %d devices a stage, %s", sh->context,
                 sh->ring == 1      ? "heads of attention shared out"
                 : sh->ulysses == 1 ? "keys and values around them"
                                    : "heads shared out in groups, keys and values around these");
}

void sp_show_costs(const struct sp_show *show, char *text, size_t n)
{
    const struct sp_costs *c = &show->prediction->costs;
    const struct sp_part_costs *p = &c->parts;
    char group[128];

    if (show->machine) {
        groups_text(show->shape, group, sizeof group);
        snprintf(text, n, "%.64s, %s, seq %d, micro-batches of %d, on %s, in milliseconds%s",
                 show->model, sp_dtype_name(show->shape->dtype), show->shape->seq,
                 show->shape->batch, show->machine->name, group);
    } else if (show->plan->family->facts.parts) {
        snprintf(text, n,
                 "pre=%.6g attn=%.6g post=%.6g of a micro-batch in a layer, a backward %.6g times "
                 "that%s, comm=%.6g wire=%.6g",
                 p->pre, p->attn, p->post, p->backward,
                 p->again > 0 ? " and pre and post once more" : "", c->comm, c->wire);
    } else {
        int used = snprintf(text, n,
                            "f=%.6g b=%.6g w=%.6g of a micro-batch on a stage, comm=%.6g wire=%.6g",
                            c->f, c->b, c->w, c->comm, c->wire);

        if (c->head > 0)
            snprintf(text + used, n - (size_t)used, " head=%.6g", c->head);
    }
}
