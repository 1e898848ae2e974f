/* The loop of `starpipe train`: the steps, and what is due between them. */
#include "cli/train/train.h"
#include "cli/train/interrupt.h"
#include "cli/train/progress.h"
#include "cli/print.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include "train/checkpoint/save.h"
#include "train/checkpoint/step_dirs.h"
#include "train/run/record.h"
#include "train/run/replan.h"
#include "train/run/watchdog.h"
#include "transport/transport.h"
#include <stdio.h>
#include <string.h>

/* ---- the report of a typical step, which the summary and the pictures are made from */

/* Reports of steps that may prove typical; on rank 0. */
struct reports {
    struct sp_typical typical;
    struct sp_step_report report[SP_TYPICAL_KEPT];
};

/* Remembers the report of the step just made, if it may prove typical. 0 or -ENOMEM. */
static int keep_report(struct reports *k, const struct sp_trainer *t, int step)
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

/* The steps to come are of another layout: none of those so far is typical. */
static void forget_reports(struct reports *k, const struct sp_trainer *t)
{
    for (int i = 0; i < SP_TYPICAL_KEPT; i++)
        sp_step_reports_free(&k->report[i], t->place.stages);
    *k = (struct reports){0};
}

/* After the last step: t->report becomes that of the typical one, and the others are freed. */
static void take_typical(struct reports *k, struct sp_trainer *t)
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

/* ---- --sample */

/* The text that is printed; it begins with the prompt. */
struct sample {
    const char *prompt;
    bool begun;
    struct sp_utf8_printer printer;
};

static int print_piece(void *arg, const char *text, size_t n)
{
    struct sample *s = arg;

    if (!s->begun) {
        printf("sample:\n");
        sp_utf8_print(&s->printer, s->prompt, strlen(s->prompt));
    }
    s->begun = true;
    if (sp_interrupt_asked() & SP_ASK_END)
        return 1;
    sp_utf8_print(&s->printer, text, n);
    return 0;
}

/* Prints the prompt and n tokens after it. All ranks call it. 0 or -ENOMEM. */
static int print_sample(struct sp_trainer *t, const char *prompt, int n)
{
    struct sp_sampling how = SP_SAMPLING_DEFAULT;
    struct sample s = {.prompt = prompt, .printer = {.to = stdout, .plain = true}};
    int err;

    how.tokens = n;
    how.seed = (int)t->seed;
    err = sp_trainer_sample(t, prompt, &how, print_piece, &s);
    if (s.begun) {
        sp_utf8_print_end(&s.printer);
        printf("\n");
    }
    return err;
}

/* ---- the steps */

/* A run of the trainer, up to its last step. */
struct run {
    struct sp_trainer *t;
    const struct sp_train_config *cfg;
    struct reports kept;
    int asked;      /* requests by signal, of any process: bits of interrupt.h */
    long by_signal; /* the step that a signal asked to be saved; -1: none */
    long told;      /* the newest step reported as saved, or found saved; -1: none */
    double started_us, loss;
};

static int asks; /* requests of this process at the end of the step */

int sp_loop_asks(void *arg)
{
    (void)arg;
    asks = sp_interrupt_asked();
    return asks;
}

static bool evaluates_after(const struct sp_train_config *a, int step)
{
    return a->eval && (step + 1 == a->steps || (a->eval_every && (step + 1) % a->eval_every == 0));
}

static bool saves_after(const struct sp_train_config *a, int step)
{
    return a->save_every && (step + 1) % a->save_every == 0;
}

/* True if something is read or written between this step and the next. */
static bool pauses_after(const struct run *r, int step)
{
    return step + 1 == r->cfg->steps || r->asked || saves_after(r->cfg, step) ||
           evaluates_after(r->cfg, step);
}

static void show_progress(const struct run *r, const struct sp_meters *m)
{
    const struct sp_train_config *a = r->cfg;
    int first = r->t->first_step;
    struct sp_progress_step now = {
        .done = m->step,
        .steps = a->steps,
        .loss = m->loss,
        .eval_loss = r->t->eval_loss,
        .tokens_per_s = (double)m->tokens / m->step_ms * 1e3,
        .bubble = m->bubble,
        .left_s = (sp_now_us() - r->started_us) / 1e6 / (m->step - first) * (a->steps - m->step),
    };

    if (r->t->world.rank == 0)
        sp_progress_show((enum sp_progress)a->progress, &now, m->step == first + 1);
}

static int evaluate(const struct run *r)
{
    double loss;
    int err = sp_trainer_evaluate(r->t, &loss);

    if (!err && r->t->world.rank == 0)
        sp_progress_say((enum sp_progress)r->cfg->progress,
                        "step %d/%d  evaluation loss %.4f  (%lld tokens in %.2f s)", r->t->done,
                        r->cfg->steps, loss, (long long)r->t->eval_data.tokens - 1,
                        r->t->eval_ms / 1e3);
    return err;
}

/* Reports a checkpoint once it is complete, which with --save-async is some steps later. */
static void tell_saved(struct run *r)
{
    const struct sp_train_config *a = &r->t->cfg;
    const struct sp_saver *s = &r->t->saver;
    char name[SP_STEP_NAME];
    double bytes;

    if (r->t->world.rank || s->saved == r->told)
        return;
    bytes = (double)sp_step_bytes(&s->dir.dir, s->saved);
    sp_step_name(s->saved, "", name);
    sp_progress_say((enum sp_progress)a->progress, "%ssaved step %ld in %s/%s, %.1f %s",
                    s->saved == r->by_signal ? "SIGUSR1: " : "", s->saved, a->save, name,
                    bytes / (bytes < 1e9 ? 1e6 : 1e9), bytes < 1e9 ? "MB" : "GB");
    r->told = s->saved;
}

/* Saves if --save-every or a signal asks for it. */
static int save_after(struct run *r, int step)
{
    const struct sp_train_config *a = r->cfg;
    bool asked = r->asked & SP_ASK_SAVE;
    int err;

    if (asked)
        r->by_signal = r->t->done;
    err = a->save && (asked || saves_after(a, step)) ? sp_trainer_save(r->t) : 0;
    if (!err && asked && !a->save && r->t->world.rank == 0)
        sp_warn("%s after step %d: nothing to save to, --save DIR was not given",
                sp_interrupt_name(SP_ASK_SAVE), step + 1);
    r->asked &= ~SP_ASK_SAVE;
    return err;
}

/* Runs until the last step, or until a request makes a step the last. */
static int run_steps(struct run *r)
{
    struct sp_trainer *t = r->t;
    int err = 0;

    while (!err && t->done < r->cfg->steps && (t->begun || !(r->asked & SP_ASK_END))) {
        struct sp_meters m;
        int step = t->done;

        if (sp_train_reorders(t)) /* steps differ from here on */
            r->kept.typical = (struct sp_typical){0};
        if (sp_train_replans(t))
            forget_reports(&r->kept, t);
        err = sp_trainer_step(t, !pauses_after(r, step), &m);
        if (err)
            return err;
        r->asked |= m.asked;
        sp_interrupt_clear(asks & SP_ASK_SAVE);
        r->loss = m.loss;
        show_progress(r, &m);
        err = keep_report(&r->kept, t, step);
        if (!err && evaluates_after(r->cfg, step))
            err = evaluate(r);
        if (!err && !t->begun && t->done < r->cfg->steps)
            err = save_after(r, step);
        if (!err)
            tell_saved(r);
    }
    return err;
}

/* Prints the last line of a run that was asked to end. 0, or -EINTR if its work is lost. */
static int say_end(const struct run *r)
{
    const struct sp_train_config *a = r->cfg;
    bool quiet = r->asked & (SP_ASK_PIPE | SP_ASK_HUP) || r->t->world.rank;
    const char *by = sp_interrupt_name(r->asked & SP_ASK_END);

    if (!quiet && a->save)
        sp_progress_say((enum sp_progress)a->progress,
                        "ended by %s after step %d of %d, saved to %s; go on with --resume %s", by,
                        r->t->done, a->steps, a->save, a->save);
    else if (!quiet)
        sp_error(EINTR,
                 "ended by %s after step %d of %d: nothing was saved, --save DIR was not given", by,
                 r->t->done, a->steps);
    return a->save ? 0 : -EINTR;
}

/* Prints the report of a typical step, and writes its trace. */
static int show_typical(struct run *r, const struct sp_timeline *record)
{
    const struct sp_typical *typical = &r->kept.typical;
    struct sp_closing closing = {.loss = r->loss, .seconds = (sp_now_us() - r->started_us) / 1e6};
    struct sp_report step;
    int err = sp_report_make(record, &step);

    if (err)
        return sp_error(ENOMEM, "no memory for the report of a step of %d ops", record->n_ops);
    closing.step = &step;
    if (r->cfg->report)
        sp_print_summary(r->t, typical, &step);
    err = r->cfg->trace ? sp_trace_write(r->t, &step.waits) : 0;
    if (!err)
        sp_print_closing(r->t, &closing);
    sp_report_destroy(&step);
    return err;
}

static int close_run(struct run *r)
{
    const struct sp_typical *typical = &r->kept.typical;
    struct sp_timeline record;
    int err = sp_train_record(r->t, typical->kept[sp_typical_best(typical)].step, &record);

    if (err)
        return err;
    err = show_typical(r, &record);
    sp_timeline_destroy(&record);
    return err;
}

/* True if --save already has this step, such as the one that the run resumed from. */
static bool is_saved(struct sp_trainer *t)
{
    int saved = t->saver.saved == t->done;

    sp_transport_share(&saved, sizeof saved);
    return saved;
}

int sp_loop(struct sp_trainer *t)
{
    struct run r = {
        .t = t, .cfg = &t->cfg, .by_signal = -1, .told = t->saver.saved, .started_us = sp_now_us()};
    const struct sp_train_config *a = r.cfg;
    bool trained = a->steps > t->first_step;
    int err;

    if (sp_train_offloads(t) && a->report)
        sp_print_offload(t);
    err = run_steps(&r);
    if (r.asked & SP_ASK_END)
        sp_watchdog_end_begun();
    if (!err && a->eval && !trained) /* of the weights as they are */
        err = evaluate(&r);
    if (!err && a->save && (trained || !is_saved(t)))
        err = sp_trainer_save(t);
    if (!err)
        tell_saved(&r); /* the one still being written, before a newer one replaces it */
    if (!err && a->save)
        err = sp_train_saved_all(t);
    if (err)
        return err;
    tell_saved(&r);
    if ((r.asked & SP_ASK_END) && t->done < a->steps)
        return say_end(&r);
    if (a->sample)
        err = print_sample(t, a->prompt, a->sample);
    sp_watchdog_begin(SP_PHASE_WORDS, "printing the summary");
    take_typical(&r.kept, t);
    if (!err && t->world.rank == 0 && trained)
        err = close_run(&r);
    sp_watchdog_end();
    return err;
}
