#include "cli/show.h"
#include "sp_error.h"
#include "trace/gantt.h"

int sp_show_svg(const struct sp_show *show, FILE *out)
{
    struct sp_gantt g;

    if (sp_gantt_from_times(show->plan, show->times, &g))
        return sp_error(ENOMEM, "show: no memory for a picture of %d ops", sp_plan_ops(show->plan));
    sp_gantt_svg(&g, out);
    sp_gantt_destroy(&g);
    return 0;
}
