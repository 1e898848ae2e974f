/* The list simulation as a record of a step. */
#include "cli/show/show.h"
#include "sp_error.h"
#include "trace/timeline/json.h"
#include <string.h>

int sp_show_perfetto(const struct sp_show *show, FILE *out)
{
    const struct sp_timeline_terms terms = {.plan = show->plan,
                                            .shape = show->shape,
                                            .recompute = show->recompute.mode,
                                            .every = show->recompute.every};
    char costs[192];
    struct sp_timeline t;
    int err = sp_timeline_of_prediction(&terms, show->prediction, &t);

    if (!err) {
        snprintf(t.unit, sizeof t.unit, "%s", show->machine ? "ms" : "");
        snprintf(t.model, sizeof t.model, "%s", show->model);
        sp_show_costs(show, costs, sizeof costs);
        snprintf(t.machine, sizeof t.machine, "%s", costs);
        err = sp_timeline_write(&t, out);
        sp_timeline_destroy(&t);
    }
    return err ? sp_error(-err, "show: no memory for the record of %d ops", sp_plan_ops(show->plan))
               : 0;
}
