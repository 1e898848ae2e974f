/* starpipe calibrate: measures this machine and writes a description of it. */
#include "train/calibrate/calibrate.h"
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/result.h"
#include "train/config.h"
#include "train/start/agree.h"
#include "transport/transport.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct args {
    struct sp_calibration how;
    int format; /* 0: JSON */
    const char *output;
};

static int parse_options(int argc, char **argv, struct args *a)
{
    struct sp_train_config like;
    int err = sp_train_config_init(&like);
    const struct sp_option options[] = {
        SP_OPTION("format", CHOICE, a->format,
                  .help = "the description that other commands read, or the same in words",
                  .choices = "json|text", .also = "json=json"),
        SP_OPTION("output", OUTPUT, a->output,
                  .help = "the file to write, which may be there (default: standard output)",
                  .arg = "FILE.json"),
        SP_OPTION("quick", FLAG, a->how.quick,
                  .help = "small sizes only, in a few seconds, less exact"),
        SP_OPTION("device", CHOICE, a->how.device, .help = "what a device is",
                  .choices = SP_TRAIN_DEVICES),
        SP_OPTION("threads", INT, a->how.threads,
                  .help = "threads of a CPU device (0: the cores of its process; and 1, 2, 4 ...)",
                  .arg = "T", .max = 4096),
        SP_OPTION("offload-dir", STRING, a->how.offload_dir,
                  .help = "where offloaded activations would go: a directory on a fast disk",
                  .arg = "DIR"),
        {0},
    };

    if (err)
        return err;
    a->how.device = like.device;
    a->how.offload_dir = like.offload_dir;
    return sp_options_parse(options, "Measures this machine and writes a description of it.", argc,
                            argv);
}

static int write_result(const struct args *a, const struct sp_machine *m)
{
    int err = sp_result_begin("calibrate", a->output, 0);

    return err ? err : sp_hardware_print(m, a->format);
}

int sp_cmd_calibrate(int argc, char **argv)
{
    struct args a = {.output = NULL};
    static struct sp_calibrated devices;
    static struct sp_machine machine;
    struct sp_disk *disk;
    struct sp_world world;
    int err;

    if (sp_transport_join(&argc, &argv, &world))
        return 2;
    sp_options_of_rank(world.rank);
    err = parse_options(argc, argv, &a);
    if (sp_train_disagree(world.rank, err)) {
        sp_transport_leave();
        return err > 0 ? 0 : 2;
    }
    err = sp_calibrate_prepare(&a.how, &world, &devices, &disk);
    if (sp_train_disagree(world.rank, err)) {
        sp_transport_leave();
        return 2;
    }
    a.how.shows = isatty(STDERR_FILENO);
    err = sp_calibrate(&a.how, &devices, disk, &machine);
    if (err && err != -EBUSY && err != -ERANGE && world.size > 1)
        sp_transport_abort(1); /* others may wait for this one */
    if (!err && world.rank == 0)
        err = write_result(&a, &machine);
    sp_transport_leave();
    return err ? 1 : 0;
}
