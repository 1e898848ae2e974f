/* Sentences about a ranking that are the same in every form. */
#include "cli/plan/ranking.h"
#include "sp_text.h"

void sp_ranking_title(const struct sp_ranking *r, FILE *out)
{
    const struct sp_search *want = r->want;
    char model[SP_TEXT_SHOWN], machine[SP_TEXT_SHOWN];

    fprintf(out, "%s on %s of %s (%s%s): a step of %s of %s, in %s",
            sp_text_show(r->names.model, model, sizeof model), SP_COUNT(want->nodes, "node"),
            SP_COUNT(want->machine->devices_per_node, "device"),
            sp_text_show(want->machine->name, machine, sizeof machine),
            want->orders > 1 ? ", in the order that --hardware has" : "",
            SP_COUNT(want->sequences, "sequence"), SP_COUNT(want->seq, "token"),
            want->any_dtype ? "bf16 or f32" : sp_dtype_name(want->dtype));
}

void sp_ranking_order(const struct sp_ranking *r, FILE *out)
{
    bool fits = r->all[r->row[0]].fits, some = r->all[r->row[r->rows - 1]].fits != fits;

    if (r->rows < r->n)
        fprintf(out, "%d of %s, a choice of schedules and grids", r->rows,
                SP_COUNT(r->n, "layout"));
    else
        fprintf(out, "%s", SP_COUNT(r->n, "layout"));
    if (r->rows > 1)
        fprintf(out, ", sorted by %s%s",
                fits ? "tokens/s (0.1 % apart is equal)" : "memory: none fits",
                some ? "; those that do not fit by memory" : "");
}

const char *sp_ranking_advice(const struct sp_ranking *r)
{
    if (!r->all[0].fits)
        return "nothing fits: the first layout needs the least memory; try more --nodes, a shorter "
               "--seq, or --recompute full";
    if (r->want->group == SP_SEARCH_TENSOR)
        return "train runs none of these: it cannot share heads, MLP or tokens among so many "
               "devices, or not with this schedule; --group both shares tokens, too";
    return "train runs none of these: it cannot share heads, MLP or tokens among so many devices, "
           "or not with this schedule";
}
