/* The report that the summary and the pictures of a run are made from: that of a typical step. */
#include "train/trainer.h"
#include "sp_error.h"

int sp_train_note_step(struct sp_trainer *t, int step)
{
    int at, err;

    if (t->world.rank)
        return 0;
    at = sp_typical_offer(&t->typical, step, t->report.step_us);
    if (at < 0)
        return 0;
    err = t->kept[at].stages ? 0 : sp_step_report_create(&t->graph, &t->kept[at]);
    if (!err)
        sp_step_report_copy(&t->graph, &t->report, &t->kept[at]);
    return err;
}

void sp_train_forget_steps(struct sp_trainer *t)
{
    t->typical = (struct sp_typical){0};
}

void sp_train_take_typical(struct sp_trainer *t)
{
    int at = sp_typical_best(&t->typical);

    for (int s = 0; at >= 0 && s < t->place.stages; s++) {
        const struct sp_stage_report *last = &t->report.stages[s];
        struct sp_stage_report *kept = &t->kept[at].stages[s];

        /* highest so far */
        kept->pool_bytes = last->pool_bytes;
        kept->device_bytes = last->device_bytes;
        kept->buffers_bytes = last->buffers_bytes;
        kept->resident_bytes = last->resident_bytes;
    }
    if (at >= 0)
        sp_step_report_copy(&t->graph, &t->kept[at], &t->report);
    for (int k = 0; k < SP_TYPICAL_KEPT; k++)
        sp_step_report_destroy(&t->graph, &t->kept[k]);
}
