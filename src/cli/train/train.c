/* starpipe train: options, a trainer, its loop, an exit status. */
#include "cli/commands.h"
#include "cli/train/args.h"
#include "cli/train/dry_run.h"
#include "cli/train/interrupt.h"
#include "cli/train/loop.h"
#include "cli/train/progress.h"
#include "cli/train/words.h"
#include "sp_error.h"
#include "train/run/log_file.h"
#include "train/start/agree.h"
#include "train/start/prepare.h"
#include "train/start/start.h"
#include <stdio.h>
#include <string.h>

static void say(void *arg, const char *line)
{
    const struct sp_train_config *cfg = arg;

    sp_progress_say((enum sp_progress)cfg->progress, "%s", line);
}

/* The exit status. */
static int run(struct sp_trainer *t)
{
    int err;

    sp_interrupt_install();
    sp_print_weights(t);
    err = sp_train_start(t);
    err = err ? err : sp_loop(t);
    if (err && err != -EDOM && err != -EINTR)
        sp_transport_abort(1); /* others may wait for this one */
    return err ? 1 : 0;
}

/* Once nothing is refused. The exit status. */
static int train(struct sp_trainer *t)
{
    bool dry = t->cfg.dry_run;
    int status = 0;

    if (t->world.rank == 0)
        sp_print_warnings(t);
    if (!dry)
        status = run(t);
    else if (t->world.rank == 0)
        status = sp_dry_run(t) ? 1 : 0;
    if (sp_trainer_close(t))
        status = 1;
    if (!dry && sp_interrupt_reader_gone() &&
        !freopen("/dev/null", "w", stdout)) /* nobody misses it */
        status = 1;
    return status;
}

int sp_cmd_train(int argc, char **argv)
{
    struct sp_train_config cfg;
    struct sp_world world;
    struct sp_trainer *t;
    int err;

    sp_interrupt_install_early();
    if (sp_transport_join(&argc, &argv, &world))
        return 2;
    sp_error_hold(world.rank);
    if (world.rank > 0 && !freopen("/dev/null", "w", stdout))
        sp_error(errno, "cannot silence standard output: %s", strerror(errno));
    err = sp_train_parse(argc, argv, &cfg);
    if (sp_train_disagree(world.rank, err)) {
        sp_transport_leave();
        return err > 0 ? 0 : 2;
    }
    if (world.rank == 0 && sp_log_is_stdout(cfg.log) && !cfg.dry_run && sp_log_take_stdout())
        sp_transport_abort(1);
    cfg.arg = &cfg;
    cfg.say = say;
    cfg.asks = sp_loop_asks;
    return sp_train_prepare(&cfg, &t) ? 2 : train(t);
}
