/*
 * For example:
 *
 *   done: 150 steps in 12.1 s, 80.4 ms each, 25480 tokens/s, bubble 21.9 % (of 1f1b itself 21.1 %);
 *     loss 2.3411
 *   time: stages compute 78 % of a step and wait 14 % for other stages, 5 % for the runtime
 *   next: starpipe report trace   or   starpipe train --resume run --steps 300
 */
#define _GNU_SOURCE /* program_invocation_name */
#include "cli/train/train.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "train/run/log_file.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LEAST_SHARE = 0.045; /* of a step, to be named */

static void print_result(const struct sp_trainer *t, const struct sp_closing *c)
{
    const struct sp_timeline *step = c->step->t;
    int n = t->done - t->first_step;
    char took[SP_TEXT_DURATION];

    if (c->seconds < 60)
        snprintf(took, sizeof took, "%.1f s", c->seconds);
    else
        sp_text_duration(c->seconds, took);
    printf("done: ");
    if (t->first_step && n == 1)
        printf("step %d", t->done);
    else if (t->first_step)
        printf("steps %d to %d", t->first_step + 1, t->done);
    else
        printf("%s", SP_COUNT(n, "step"));
    printf(" in %s, %.1f ms each, %.0f tokens/s, bubble %.1f %%", took, step->length,
           1e3 * (double)sp_train_step_tokens(t) / step->length, sp_figure(100 * step->bubble, 1));
    if (step->stages > 1)
        printf(" (of %s itself %.1f %%)", t->plan.def->name,
               sp_figure(100 * c->step->causes.bubble[SP_CAUSE_SCHEDULE], 1));
    printf("; loss %.4f", c->loss);
    if (!isnan(t->eval_loss))
        printf(", evaluation %.4f", t->eval_loss);
    printf("\n");
}

/* Parts of a step that are one for a reader. */
struct share {
    const char *words;
    double part; /* of the step, in the mean of the stages */
};

static int compare_shares(const void *x, const void *y)
{
    const struct share *a = x, *b = y;

    return a->part < b->part ? 1 : a->part > b->part ? -1 : strcmp(a->words, b->words);
}

enum { WAITS = 5 };

/* The longest first. Returns what the stages computed. */
static double share_out(const struct sp_waits *w, struct share waits[WAITS], double *update)
{
    double mean[SP_STEP_PARTS] = {0};

    for (int i = 0; i < SP_STEP_PARTS; i++)
        for (int s = 0; s < w->t->stages; s++)
            mean[i] += w->stage[s][i] / w->t->stages / w->t->length;
    waits[0] = (struct share){"for other stages", mean[SP_STEP_UPSTREAM] + mean[SP_STEP_BARRIER]};
    waits[1] = (struct share){"for messages", mean[SP_STEP_MESSAGE] + mean[SP_STEP_INTERFACE]};
    waits[2] = (struct share){"for tensors that left memory", mean[SP_STEP_OFFLOAD]};
    waits[3] = (struct share){"for the runtime", mean[SP_STEP_SUBMISSION] + mean[SP_STEP_ENGINE]};
    waits[4] = (struct share){"for a core", mean[SP_STEP_CORE]};
    if (w->t->stages == 1) /* what it waits for at the end is no other's */
        waits[0].words = "for the end of the step";
    qsort(waits, WAITS, sizeof *waits, compare_shares);
    *update = mean[SP_STEP_UPDATE];
    return mean[SP_STEP_COMPUTE];
}

static void print_time(const struct sp_trainer *t, const struct sp_closing *c)
{
    struct share waits[WAITS];
    bool one = c->step->t->stages == 1;
    char advice[SP_ADVICE];
    double update, compute = share_out(&c->step->waits, waits, &update);

    printf("time: %s %.0f %% of a step", one ? "the stage computes" : "stages compute",
           100 * compute);
    for (int i = 0; i < WAITS && waits[i].part >= LEAST_SHARE; i++)
        printf("%s %.0f %% %s",
               i     ? ","
               : one ? " and waits"
                     : " and wait",
               100 * waits[i].part, waits[i].words);
    if (update >= LEAST_SHARE)
        printf("; norm and optimizer take %.0f %%", 100 * update);
    sp_advise(t, c->step, advice);
    printf("%s%s\n", advice[0] ? "; " : "", advice);
}

/* A word of a shell's command. */
static void print_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=:,+@%";

    if (word[0] && word[strspn(word, plain)] == '\0') {
        printf("%s", word);
        return;
    }
    putchar('\'');
    for (; *word; word++) {
        if (*word == '\'')
            printf("'\\''");
        else
            putchar((unsigned char)*word < 32 ? '?' : *word);
    }
    putchar('\'');
}

static void print_command(const char *command, const char *path)
{
    print_word(program_invocation_name);
    printf(" %s ", command);
    print_word(path);
}

static void print_next(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    printf("next: ");
    if (a->trace)
        print_command("report", a->trace);
    else if (a->log && !sp_log_is_stdout(a->log))
        print_command("watch", a->log);
    else
        printf("the same with --report, for the tables of a step%s",
               a->save ? "" : ", or with --save DIR, to keep the model");
    if (a->save) {
        printf("   or   ");
        print_command("train --resume", a->save);
        printf(" --steps %lld", 2LL * a->steps);
    }
    printf("\n");
}

void sp_print_closing(const struct sp_trainer *t, const struct sp_closing *c)
{
    print_result(t, c);
    print_time(t, c);
    print_next(t);
}
