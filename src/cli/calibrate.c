/* starpipe calibrate: measures this machine and writes a description of it. */
#include "train/calibrate/calibrate.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "graphs/placement.h"
#include "model/files/output.h"
#include "sp_error.h"
#include "train/config.h"
#include "train/start/agree.h"
#include "train/start/outputs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct args {
    struct sp_calibration how;
    const char *output;
};

static int parse(int argc, char **argv, struct args *a)
{
    struct sp_train_config like;
    int err = sp_train_config_init(&like);
    const struct sp_option options[] = {
        {"output", SP_OPT_STRING, &a->output, "FILE.json",
         "the file to write, which may be there (standard output)", 0, 0, 0, 0, 0},
        {"quick", SP_OPT_FLAG, &a->how.quick, 0, "small sizes only, in a few seconds, less exact",
         0, 0, 0, 0, 0},
        {"device", SP_OPT_CHOICE, &a->how.device, 0, "what a device is", 0, 0, SP_TRAIN_DEVICES, 0,
         0},
        {"threads", SP_OPT_INT, &a->how.threads, "T",
         "threads of a CPU device (0: the cores of its process)", 0, 4096, 0, 0, 0},
        {"offload-dir", SP_OPT_STRING, &a->how.offload_dir, "DIR",
         "where offloaded activations would go: a directory on a fast disk", 0, 0, 0, 0, 0},
        {0},
    };

    if (err)
        return err;
    a->how.device = like.device;
    a->how.offload_dir = like.offload_dir;
    return sp_options_parse(options, "Measures this machine and writes a description of it.", argc,
                            argv);
}

/* Whole, under its name, or not at all. */
static int write_machine(const char *path, const struct sp_machine *m)
{
    char *text = sp_machine_text(m);
    int err = text ? 0 : -ENOMEM;

    if (!err && !path) {
        fputs(text, stdout);
    } else if (!err) {
        err = sp_output_text_in(NULL, path, text, strlen(text));
    }
    free(text);
    return err;
}

int sp_cmd_calibrate(int argc, char **argv)
{
    struct args a = {.output = NULL};
    struct sp_placement place;
    struct sp_machine machine;
    struct sp_disk *disk;
    struct sp_world world;
    int err;

    if (sp_transport_join(&argc, &argv, &world))
        return 2;
    sp_error_hold(world.rank);
    if (world.rank > 0 && !freopen("/dev/null", "w", stdout))
        sp_error(errno, "cannot silence standard output: %s", strerror(errno));
    err = parse(argc, argv, &a);
    if (sp_train_disagree(world.rank, err)) {
        sp_transport_leave();
        return err > 0 ? 0 : 2;
    }
    err = a.output && world.rank == 0 ? sp_output_try_file(a.output, false) : 0;
    err = err ? err : sp_calibrate_prepare(&a.how, &world, &place, &disk);
    if (sp_train_disagree(world.rank, err)) {
        sp_transport_leave();
        return 2;
    }
    a.how.shows = isatty(STDERR_FILENO);
    err = sp_calibrate(&a.how, &place, disk, &machine);
    if (err && world.size > 1)
        sp_transport_abort(1); /* others may wait for this one */
    if (!err && world.rank == 0)
        err = write_machine(a.output, &machine);
    sp_transport_leave();
    return err ? 1 : 0;
}
