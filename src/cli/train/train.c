/* starpipe train: options, a trainer, its loop, an exit status. */
#include "cli/commands.h"
#include "cli/result.h"
#include "cli/train/train.h"
#include "cli/train/interrupt.h"
#include "cli/train/progress.h"
#include "offload/host_memory.h"
#include "sp_error.h"
#include "train/run/log_file.h"
#include "train/run/watchdog.h"
#include "train/start/agree.h"
#include "train/start/start.h"
#include "transport/transport.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say_line(void *arg, const char *line)
{
    const struct sp_train_config *cfg = arg;

    sp_progress_say((enum sp_progress)cfg->progress, "%s", line);
}

/* The exit status. */
static int start_and_loop(struct sp_trainer *t)
{
    int err;

    sp_interrupt_install();
    sp_print_header(t);
    err = sp_train_start(t);
    err = err ? err : sp_loop(t);
    if (err && err != -EDOM && err != -EINTR)
        sp_transport_abort(1); /* others may wait for this process */
    return err ? 1 : 0;
}

/* Trains, after all options were accepted. Returns the exit status. */
static int run_trainer(struct sp_trainer *t)
{
    bool dry = t->cfg.dry_run;
    int status = 0;

    if (t->world.rank == 0)
        sp_print_warnings(t);
    if (!dry)
        status = start_and_loop(t);
    else if (t->world.rank == 0)
        status = sp_result_begin("train", t->cfg.output, 0) || sp_dry_run(t) ? 1 : 0;
    if (sp_trainer_close(t))
        status = 1;
    sp_watchdog_begin(SP_PHASE_WORDS, "printing");
    if (!dry && sp_interrupt_reader_gone() &&
        !freopen("/dev/null", "w", stdout)) /* nobody misses it */
        status = 1;
    fflush(stdout); /* a caller that checks for write errors sees a failure again */
    sp_watchdog_end();
    sp_watchdog_begin(SP_PHASE_SETUP, "leaving"); /* watches until the process ends */
    return status;
}

/* The value of --stall-timeout before the options are read: MPI's start may already need it. */
static double early_timeout(int argc, char **argv, double seconds)
{
    static const char option[] = "--stall-timeout";
    size_t n = strlen(option);

    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], option, n) && argv[i][n] == '=')
            seconds = strtod(argv[i] + n + 1, NULL);
        else if (!strcmp(argv[i], option) && i + 1 < argc)
            seconds = strtod(argv[i + 1], NULL);
    }
    return seconds > 0 ? seconds : 0;
}

/* Reads the options and makes all checks but those for several processes. The exit status, or
 * -1: run *cfg. */
static int read_options(int argc, char **argv, struct sp_train_config *cfg)
{
    struct sp_world world;
    int err;

    if (sp_train_join(&argc, &argv, &world))
        return 2;
    sp_options_of_rank(world.rank);
    sp_watchdog_begin(SP_PHASE_PREPARE, "reading the options");
    err = sp_train_parse(argc, argv, cfg);
    if (sp_train_disagree(world.rank, err)) {
        sp_watchdog_end();
        sp_train_leave();
        return err > 0 ? 0 : 2;
    }
    sp_watchdog_end();
    if (world.rank == 0 && sp_log_is_stdout(cfg->log) && !cfg->dry_run && sp_log_take_stdout())
        sp_transport_abort(1);
    sp_watchdog_start(cfg->stall_timeout);
    return -1;
}

/* Under a limit on address space all threads share one arena: each would reserve 64 MiB of its
 * own. */
static void share_arena(void)
{
    struct sp_host_memory host;

    sp_host_memory_read("", &host);
    if (host.process.bytes < INT64_MAX)
        mallopt(M_ARENA_MAX, 1);
}

int sp_cmd_train(int argc, char **argv)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    bool quiet =
        sp_error_quiet(true); /* what is wrong with the defaults is told when they are read */
    int status;

    sp_interrupt_install_early();
    sp_train_config_init(&cfg);
    sp_error_quiet(quiet);
    sp_watchdog_own_process();
    sp_watchdog_start(early_timeout(argc, argv, cfg.stall_timeout));
    status = read_options(argc, argv, &cfg);
    if (status >= 0)
        return status;
    cfg.arg = &cfg;
    cfg.say = say_line;
    cfg.asks = sp_loop_asks;
    share_arena();
    return sp_train_prepare(&cfg, &t) ? 2 : run_trainer(t);
}
