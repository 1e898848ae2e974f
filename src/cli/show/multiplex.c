/* Who computes which slices where they are shared out (SPPO table 3), and what it gains. */
#include "cli/show/show.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_names[] = {
    [SP_LEFT] = "left", [SP_STEADY] = "steady", [SP_RIGHT] = "right"};

/* The slices of a stage in a phase, first .. last; and the stages that compute them, if any. */
struct phase {
    int first, last, from, to;
};

static struct phase phase_of(const struct sp_layout *lay, int stage, enum sp_phase phase)
{
    struct phase p = {.first = 0, .last = -1, .from = 0, .to = -1};

    for (int k = 0; k < lay->slices; k++) {
        if (sp_slice_phase(lay, stage, k) != phase)
            continue;
        if (p.last < p.first)
            p.first = k;
        p.last = k;
        sp_slice_stages(lay, stage, k, &p.from, &p.to);
    }
    return p;
}

/* "{0,1,2}", of many "{3..40}", of none "-". */
static void print_set(int first, int last, FILE *out)
{
    char text[64] = "-";
    size_t used = 0;

    if (last - first >= 8)
        snprintf(text, sizeof text, "{%d..%d}", first, last);
    else if (last >= first)
        for (int i = first; i <= last; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d%s",
                                     i == first ? "{" : ",", i, i == last ? "}" : "");
    fprintf(out, "  %-18s", text);
}

void sp_show_multiplex_text(const struct sp_show *show, FILE *out)
{
    const struct sp_layout *lay = &show->plan->layout;
    struct sp_layout plain = *lay;
    struct sp_times times;
    struct sp_plan plan;
    char why[128];

    fprintf(out, "\nslices of  ");
    for (int s = 0; s < lay->stages; s++)
        fprintf(out, "  stage %-12d", s);
    for (int k = SP_LEFT; k <= SP_RIGHT; k++) {
        fprintf(out, "\n%-11s", phase_names[k]);
        for (int s = 0; s < lay->stages; s++) {
            struct phase p = phase_of(lay, s, (enum sp_phase)k);

            print_set(p.first, p.last, out);
        }
    }
    for (int k = SP_LEFT; k <= SP_RIGHT; k += SP_RIGHT - SP_LEFT) {
        fprintf(out, "\n%-5s by   ", phase_names[k]);
        for (int s = 0; s < lay->stages; s++) {
            struct phase p = phase_of(lay, s, (enum sp_phase)k);

            print_set(p.from, p.to, out);
        }
    }
    fprintf(out, "\n");

    /* the same slices, each by its stage alone */
    plain.map = NULL;
    plain.options = "";
    if (sp_plan_create(show->plan->def->name, &plain, &plan))
        return;
    if (show->plan->slice_share) {
        plan.slice_share = malloc((size_t)lay->slices * sizeof *plan.slice_share);
        if (plan.slice_share)
            memcpy(plan.slice_share, show->plan->slice_share,
                   (size_t)lay->slices * sizeof *plan.slice_share);
    }
    if (!sp_listsim(&plan, &show->prediction->costs, SP_PAIRED, &times, why, sizeof why)) {
        fprintf(out,
                "without multiplex: makespan %.6g, bubble %.2f %%; with it %.6g, %.2f %%: %.1f %% "
                "less\n",
                times.makespan, 100 * times.bubble_ratio, show->prediction->times.makespan,
                100 * show->prediction->times.bubble_ratio,
                times.makespan > 0 ? 100 * (1 - show->prediction->times.makespan / times.makespan)
                                   : 0);
        sp_times_destroy(&times);
    }
    sp_plan_destroy(&plan);
}

static json_t *range(int first, int last)
{
    json_t *list = json_array();

    for (int i = first; i <= last; i++)
        json_array_append_new(list, json_integer(i));
    return list;
}

json_t *sp_show_multiplex_json(const struct sp_show *show)
{
    const struct sp_layout *lay = &show->plan->layout;
    json_t *stages = json_array();

    for (int s = 0; s < lay->stages; s++) {
        json_t *stage = json_object();

        for (int k = SP_LEFT; k <= SP_RIGHT; k++) {
            struct phase p = phase_of(lay, s, (enum sp_phase)k);
            char key[32];

            json_object_set_new(stage, phase_names[k], range(p.first, p.last));
            snprintf(key, sizeof key, "%s_stages", phase_names[k]);
            json_object_set_new(stage, key, range(p.from, p.to));
        }
        json_array_append_new(stages, stage);
    }
    return stages;
}
