#include "cli/show/show.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include <string.h>

int sp_show_gantt(const struct sp_show *show, struct sp_gantt *g)
{
    int ret = sp_gantt_from_times(show->plan, &show->prediction->times, g);
    size_t used;

    if (ret)
        return ret;
    used = strlen(g->subtitle);
    used += (size_t)snprintf(g->subtitle + used, sizeof g->subtitle - used, "; costs: ");
    sp_show_costs(show, g->subtitle + used, sizeof g->subtitle - used);
    if (show->machine)
        g->unit = "ms";
    ret = sp_gantt_add_messages(g, show->plan, show->prediction);
    if (ret)
        sp_gantt_destroy(g);
    return ret;
}

int sp_show_svg(const struct sp_show *show, FILE *out)
{
    struct sp_gantt g;

    if (sp_show_gantt(show, &g))
        return sp_error(ENOMEM, "show: no memory for a picture of %d ops", sp_plan_ops(show->plan));
    sp_gantt_svg(&g, out);
    sp_gantt_destroy(&g);
    return 0;
}
