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

/* Can a file be made at `path`, or in it if it is a directory? Nothing that exists is touched. */
static int try_file(const char *path, bool is_dir)
{
    char name[PATH + 32];
    bool existed;
    FILE *f;
    int err = is_dir ? make_dir(path) : 0;

    if (err)
        return err;
    snprintf(name, sizeof name, is_dir ? "%s/.starpipe-probe" : "%s", path);
    existed = !access(name, F_OK);
    f = fopen(name, "ab");
    if (!f)
        return sp_error(errno, "cannot write %s: %s", path, strerror(errno));
    fclose(f);
    if (!existed)
        unlink(name);
    return 0;
}

int sp_train_check_output(const struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int err = 0;

    if (t->world.rank || a->dry_run)
        return 0;
    if (a->log)
        err = try_file(a->log, false);
    if (!err && a->dump_grads)
        err = try_file(a->dump_grads, false);
    if (!err && a->save)
        err = try_file(a->save, true);
    if (!err && a->trace)
        err = try_file(a->trace, true);
    return err;
}
