/* Chooses for --memory-limit which layers compute again in the backward, as `train` does on a machine
 * that is described: --recompute auto, and schedule adapipe. */
#include "cli/show/show.h"
#include "plan/adapipe.h"
#include "plan/recompute.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <string.h>

static int choose_auto(struct sp_show *show, const struct sp_layout_args *l, struct sp_plan *plan)
{
    const struct sp_recompute_wish wish = {.plan = plan,
                                           .shape = show->shape,
                                           .limit = (int64_t)l->memory_limit,
                                           .machine = show->machine,
                                           .devices = 1};
    struct sp_recompute_chosen chosen;
    int err;

    if (plan->family->facts.parts || !strcmp(plan->def->name, "adapipe"))
        return sp_error(EINVAL,
                        "show: --recompute auto: %s has no layers that choose one by one; give "
                        "another --recompute, or leave it out",
                        plan->def->name);
    err = sp_recompute_choose(&wish, &chosen);
    if (err == -ENOMEM)
        return sp_error(ENOMEM, "show: no memory to choose what %d stages compute again",
                        plan->layout.stages);
    show->recompute.mode = chosen.mode;
    if (!err) /* otherwise the check of the limit says what is needed at least */
        plan->recompute = chosen.layer;
    return 0;
}

int sp_show_choose_recompute(struct sp_show *show, const struct sp_layout_args *l,
                             struct sp_plan *plan)
{
    if (l->recompute && sp_recompute_is_auto(l->recompute))
        return choose_auto(show, l, plan);
    if (show->machine && l->memory_limit && !strcmp(plan->def->name, "adapipe"))
        return sp_adapipe_take(plan, show->shape, show->machine, (int64_t)l->memory_limit);
    return 0;
}

void sp_show_recompute_text(const struct sp_plan *plan, FILE *out)
{
    int layers = plan->layout.layers, globals = sp_globals(&plan->layout), first, count;

    fprintf(out, "recompute ");
    for (int g = 0; g < globals; g++) {
        sp_part_layers(plan, layers, globals, g, &first, &count);
        putc(' ', out);
        for (int l = first; l < first + count; l++)
            putc(sp_recompute_letter((enum sp_recompute)plan->recompute[l]), out);
    }
    fprintf(out, " (- keeps all, s computes norms and activations again, a all but attention, f "
                 "everything)\n");
}
