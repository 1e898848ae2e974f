/* The report that the summary and the pictures of a run are made from: that of a typical step. */
#include "cli/train/typical.h"
#include "sp_error.h"

int sp_typical_note(struct sp_typical_report *k, const struct sp_trainer *t, int step)
{
    int at, err;

    if (t->world.rank)
        return 0;
    at = sp_typical_offer(&k->typical, step, t->report.step_us);
    if (at < 0)
        return 0;
    err = k->report[at].stages ? 0 : sp_step_report_create(&t->graph, &k->report[at]);
    if (!err)
        sp_step_report_copy(&t->graph, &t->report, &k->report[at]);
    return err;
}

void sp_typical_forget(struct sp_typical_report *k, const struct sp_trainer *t)
{
    for (int i = 0; i < SP_TYPICAL_KEPT; i++)
        sp_step_reports_free(&k->report[i], t->place.stages);
    *k = (struct sp_typical_report){0};
}

void sp_typical_take(struct sp_typical_report *k, struct sp_trainer *t)
{
    int at = sp_typical_best(&k->typical);

    for (int s = 0; at >= 0 && s < t->place.stages; s++) {
        const struct sp_stage_report *last = &t->report.stages[s];
        struct sp_stage_report *kept = &k->report[at].stages[s];

        /* highest so far */
        kept->pool_bytes = last->pool_bytes;
        kept->device_bytes = last->device_bytes;
        kept->buffers_bytes = last->buffers_bytes;
        kept->resident_bytes = last->resident_bytes;
    }
    if (at >= 0)
        sp_step_report_copy(&t->graph, &k->report[at], &t->report);
    for (int i = 0; i < SP_TYPICAL_KEPT; i++)
        sp_step_report_destroy(&t->graph, &k->report[i]);
}
