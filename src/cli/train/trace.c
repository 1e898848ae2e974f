#include "cli/train/train.h"
#include "cli/record.h"
#include "trace/analysis/causes.h"
#include "trace/timeline/pictures.h"
#include "train/run/record.h"
#include "sp_error.h"
#include "sp_text.h"

static int write_predicted(const struct sp_trainer *t, const char *dir)
{
    struct sp_timeline predicted;
    int err = sp_train_record_predicted(t, &predicted);

    if (err)
        return err;
    err = sp_record_write(&predicted, dir, "predicted.json");
    sp_timeline_destroy(&predicted);
    return err;
}

/* Both pictures; they are destroyed. */
static int write_pictures(const struct sp_trainer *t, const struct sp_waits *step,
                          const struct sp_timeline *expected, struct sp_gantt g[2])
{
    static const char *const what[] = {"measured", "expected"};
    int err = sp_gantt_of_timeline(step->t, &g[0]);

    err = err ? err : sp_gantt_of_timeline(expected, &g[1]);
    if (err)
        return sp_error(-err, "no memory for the pictures of a step");
    snprintf(g[0].title, sizeof g[0].title, "%s measured: %s, %s, %s", t->plan.def->name,
             t->model.name, SP_COUNT(t->plan.layout.stages, "stage"),
             SP_COUNT(t->plan.layout.micro_batches, "micro-batch"));
    snprintf(g[1].title, sizeof g[1].title,
             "%s expected: list simulation with the median time of each kind of op",
             t->plan.def->name);
    for (int k = 0; k < 2; k++)
        snprintf(g[k].subtitle, sizeof g[k].subtitle,
                 "%.4g ms; %.64s, %s, seq %d, micro-batches of %d, on %s, in %s", g[k].end,
                 t->model.name, sp_dtype_name(t->graph.shape.dtype), t->cfg.layout.seq,
                 t->cfg.layout.micro_batch_size, t->place.gpus ? "GPUs" : "CPUs",
                 SP_COUNT(t->place.world.size, "process"));
    return sp_record_pictures(t->plan.def, g, what, t->cfg.trace);
}

int sp_trace_write(const struct sp_trainer *t, const struct sp_waits *step)
{
    struct sp_timeline expected = {0};
    struct sp_gantt g[2] = {0};
    int err = sp_record_write(step->t, t->cfg.trace, "trace.json");

    err = err ? err : write_predicted(t, t->cfg.trace);
    if (!err && sp_causes_expected(step, &expected))
        err = sp_error(ENOMEM, "no memory for the pictures of a step");
    err = err ? err : write_pictures(t, step, &expected, g);
    sp_gantt_destroy(&g[0]);
    sp_gantt_destroy(&g[1]);
    sp_timeline_destroy(&expected);
    return err;
}
