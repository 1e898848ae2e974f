#include "cli/outputs.h"
#include "cli/train.h"
#include "sp_error.h"
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4400 };

static int make_dir(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return sp_error(errno, "cannot make directory %s: %s", path, strerror(errno));
    return 0;
}

int sp_train_check_output(const struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int err = 0;

    if (t->world.rank || a->dry_run)
        return 0;
    if (a->log)
        err = sp_output_try_file(a->log);
    if (!err && a->dump_grads)
        err = sp_output_try_file(a->dump_grads);
    if (!err && a->save)
        err = sp_output_try_dir(a->save);
    if (!err && a->trace)
        err = sp_train_try_pictures(a->trace);
    return err;
}
