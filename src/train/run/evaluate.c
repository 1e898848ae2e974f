/* --eval: the loss on a file that is held out, every now and then and at the end. */
#include "train/trainer.h"
#include "cli/train/progress.h"
#include "graphs/evaluate.h"
#include "sp_error.h"
#include <math.h>

/* Where --eval-tokens is not given. */
enum { DEFAULT_STEPS = 10 };

static int64_t step_tokens(const struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->args.layout;

    return (int64_t)t->plan.layout.micro_batches * l->micro_batch_size * l->seq;
}

/* Steps' worth: as many as were asked for, rounded up; as the file has; at least one. */
static int64_t steps_of_file(const struct sp_trainer *t)
{
    int64_t tokens = step_tokens(t), seq = t->args.layout.seq;
    int64_t there = ((int64_t)t->eval_data.tokens - 1) / seq * seq / tokens;
    int64_t asked =
        t->args.eval_tokens ? (t->args.eval_tokens + tokens - 1) / tokens : DEFAULT_STEPS;
    int64_t steps = asked < there ? asked : there;

    return steps > 0 ? steps : 1;
}

int64_t sp_train_eval_tokens(const struct sp_trainer *t)
{
    return t->eval_steps * step_tokens(t);
}

int sp_train_open_eval(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int err;

    t->eval_loss = NAN;
    if (!a->eval)
        return 0;
    err = sp_data_open(a->eval, a->tokens ? a->token_bytes : 1, t->model.vocab, &t->eval_data);
    if (err)
        return err;
    t->eval_steps = (int)steps_of_file(t);
    return 0;
}

bool sp_train_evaluates_after(const struct sp_trainer *t, int step)
{
    const struct sp_train_args *a = &t->args;

    return a->eval && (step + 1 == a->steps || (a->eval_every && (step + 1) % a->eval_every == 0));
}

int sp_train_evaluate(struct sp_trainer *t, int step)
{
    double start = sp_now_us(), ms;
    int err = sp_evaluate(&t->graph, &t->eval_data, t->eval_steps, &t->eval_loss);

    if (err)
        return err;
    if (!isfinite(t->eval_loss))
        return t->world.rank ? -EDOM
                             : sp_error(EDOM,
                                        "step %d: loss %g on %s: the run has diverged; try a lower "
                                        "--lr",
                                        step, t->eval_loss, t->args.eval);
    ms = (sp_now_us() - start) / 1e3;
    if (t->world.rank)
        return 0;
    sp_progress_say((enum sp_progress)t->args.progress,
                    "step %d/%d  evaluation loss %.4f  (%lld tokens in %.2f s)", step + 1,
                    t->args.steps, t->eval_loss, (long long)sp_train_eval_tokens(t), ms / 1e3);
    return sp_train_log_eval(t, step, ms);
}
