#define _GNU_SOURCE /* vasprintf */
#include "train/trainer.h"
#include "sp_error.h"
#include "sp_text.h"
#include "transport/transport.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int sp_trainer_done(const struct sp_trainer *t)
{
    return t->done;
}

int sp_trainer_rank(const struct sp_trainer *t)
{
    return t->world.rank;
}

/* True if a program reads a dry run's output, or a file takes it: then nothing else may be
 * printed. */
static bool is_asked_for_data(const struct sp_trainer *t)
{
    return t->cfg.dry_run && (t->cfg.format != SP_TRAIN_TEXT || t->cfg.output);
}

void sp_train_say(const struct sp_trainer *t, const char *format, ...)
{
    char *line = NULL, shown[4096];
    va_list ap;

    if (!t->cfg.say || t->world.rank || is_asked_for_data(t))
        return;
    va_start(ap, format);
    if (vasprintf(&line, format, ap) >= 0)
        t->cfg.say(t->cfg.arg, sp_text_show(line, shown, sizeof shown));
    va_end(ap);
    free(line);
}

void sp_train_limit(struct sp_trainer *t, int which, const char *name, int64_t bytes)
{
    char mib[32];

    snprintf(mib, sizeof mib, "%lld", (long long)((bytes + (1 << 20) - 1) >> 20));
    if (!getenv(name) && !setenv(name, mib, 0))
        t->limited[which] = name;
}

int sp_train_fail(const struct sp_trainer *t, int err)
{
    if (err && err != -EDOM && t->world.size > 1)
        sp_transport_abort(1);
    return err;
}

int sp_train_refuse_call(const struct sp_trainer *t, const char *what, bool between)
{
    if (t->cfg.inference && strcmp(what, "sample"))
        return sp_error(EINVAL, "%s: the trainer was opened to sample", what);
    if (!t->started || t->diverged)
        return sp_error(EINVAL, "%s: the trainer %s", what,
                        t->started ? "has diverged" : "was opened for a dry run");
    if (between && t->begun)
        return sp_error(
            EBUSY, "%s: the next step has begun; make the one before it with `more` false", what);
    return 0;
}
