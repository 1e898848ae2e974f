/* --eval: computes the loss on a held-out file at intervals and at the end. */
#include "graphs/inference/inference.h"
#include "sp_error.h"
#include "train/run/log.h"
#include "train/run/watchdog.h"
#include "sinks/starpu/sink.h"
#include <math.h>

int sp_trainer_evaluate(struct sp_trainer *t, double *loss)
{
    double start = sp_now_us();
    int err = sp_train_refuse_call(t, "evaluate", true);

    if (!err && !t->eval_steps)
        err = sp_error(EINVAL, "evaluate: the configuration names no file of tokens for it");
    if (err)
        return err;
    sp_watchdog_begin(SP_PHASE_EVALUATE, "evaluating after step %d", t->done);
    err = sp_evaluate(&t->graph, &t->eval_data, t->eval_steps, &t->eval_loss);
    sp_watchdog_end();
    if (err)
        return sp_train_fail(t, err);
    t->eval_ms = (sp_now_us() - start) / 1e3;
    *loss = t->eval_loss;
    if (isfinite(t->eval_loss))
        return sp_train_fail(t, sp_train_log_eval(t));
    t->diverged = true;
    if (t->world.rank == 0)
        sp_error(EDOM, "step %d: loss %g on %s: the run has diverged; try a lower --lr", t->done,
                 t->eval_loss, t->cfg.eval);
    return -EDOM;
}
