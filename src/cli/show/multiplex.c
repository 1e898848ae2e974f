/* Who computes which slices where they are shared out (SPPO table 3), and what it gains. */
#include "cli/show/show.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/plan_create.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

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

/* The same slices, each by its stage alone. 0 or -errno. */
static int create_plain(const struct sp_plan *plan, struct sp_plan *plain)
{
    struct sp_layout lay = plan->layout;
    int n = lay.slices, *len, err;

    lay.map = NULL;
    lay.options = "";
    err = sp_plan_create(plan->def->name, &lay, plain);
    if (err || !plan->first_token)
        return err;
    len = calloc((size_t)n, sizeof *len);
    for (int k = 0; len && k < n; k++)
        len[k] = plan->first_token[k + 1] - plan->first_token[k];
    err = len ? sp_plan_slices(plain, len, plan->slice_share) : -ENOMEM;
    free(len);
    if (err)
        sp_plan_destroy(plain);
    return err;
}

static void print_gain(const struct sp_show *show, FILE *out)
{
    const struct sp_times *with = &show->prediction->times, *without;
    struct sp_prediction p;
    struct sp_plan plain;

    if (create_plain(show->plan, &plain))
        return;
    if (!sp_show_simulate(show, &plain, &p)) {
        without = &p.times;
        fprintf(out,
                "without multiplex: makespan %.6g, bubble %.2f %%; with it %.6g, %.2f %%: %.1f %% "
                "less\n",
                without->makespan, 100 * without->bubble_ratio, with->makespan,
                100 * with->bubble_ratio,
                without->makespan > 0 ? 100 * (1 - with->makespan / without->makespan) : 0);
        sp_prediction_destroy(&p);
    }
    sp_plan_destroy(&plain);
}

void sp_show_multiplex_text(const struct sp_show *show, FILE *out)
{
    const struct sp_layout *lay = &show->plan->layout;

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

    print_gain(show, out);
}

static json_t *range_json(int first, int last)
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

            json_object_set_new(stage, phase_names[k], range_json(p.first, p.last));
            snprintf(key, sizeof key, "%s_stages", phase_names[k]);
            json_object_set_new(stage, key, range_json(p.from, p.to));
        }
        json_array_append_new(stages, stage);
    }
    return stages;
}
