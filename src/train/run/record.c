#include "train/run/record.h"
#include "sp_error.h"
#include "trace/timeline/timeline.h"
#include "train/start/machine.h"
#include <stdlib.h>
#include <string.h>

static struct sp_timeline_terms terms_of(const struct sp_trainer *t, const int *worker)
{
    return (struct sp_timeline_terms){.plan = &t->plan,
                                      .shape = &t->graph.shape,
                                      .recompute = t->recompute,
                                      .every = t->every,
                                      .process = worker + t->place.stages,
                                      .worker = worker,
                                      .processes = t->place.world.size};
}

/* Fills in all of a record but its times. */
static int finish(const struct sp_trainer *t, struct sp_timeline *r, int err)
{
    if (!err) {
        snprintf(r->unit, sizeof r->unit, "ms");
        snprintf(r->model, sizeof r->model, "%s", t->model.name);
        snprintf(r->machine, sizeof r->machine, "%s", t->machine.name);
        r->options = strdup(t->settings ? t->settings : "");
        err = r->options ? 0 : -ENOMEM;
    }
    return err ? sp_error(-err, "no memory for the record of a step of %d ops",
                          sp_plan_ops(&t->plan))
               : 0;
}

int sp_train_record(const struct sp_trainer *t, int step, struct sp_timeline *record)
{
    int *worker = sp_train_stage_workers(t), err = -ENOMEM;

    if (worker) {
        const struct sp_timeline_terms terms = terms_of(t, worker);

        err = sp_timeline_of_report(&terms, &t->report, record);
    }
    free(worker);
    if (!err) {
        record->step = step + 1;
        record->overlaps = t->cfg.post_validation;
    }
    return finish(t, record, err);
}

int sp_train_record_predicted(const struct sp_trainer *t, struct sp_timeline *record)
{
    int *worker = sp_train_stage_workers(t);
    struct sp_prediction predicted;
    int err = worker ? sp_train_predict(t, &predicted) : -ENOMEM;

    if (!err) {
        struct sp_timeline_terms terms = terms_of(t, worker);

        if (!sp_train_predicts_workers(t)) /* each stage has a device of its own */
            terms.process = terms.worker = NULL;
        err = sp_timeline_of_prediction(&terms, &predicted, record);
        sp_prediction_destroy(&predicted);
    }
    free(worker);
    return finish(t, record, err);
}
