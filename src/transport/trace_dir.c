#include "transport/trace_dir.h"
#include "sp_error.h"
#include "transport/starpu_environment.h"
#include "transport/transport.h"
#include <limits.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "STARPU_FXT_PREFIX"

/* All processes get the same answer: train/start/agree.c has checked the environment. */
static bool wanted(void)
{
#ifdef STARPU_USE_FXT
    const char *traced = getenv("STARPU_FXT_TRACE"), *prefix = getenv(VARIABLE);

    return traced && atoi(traced) > 0 && !(prefix && *prefix);
#else
    return false;
#endif
}

/* Another machine than rank 0's has no such directory yet; on rank 0's machine it is ours
 * already. */
static bool have_dir(const char *path)
{
    struct stat st;

    if (mkdir(path, 0700) && errno != EEXIST)
        return false;
    return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

int sp_trace_dir(int rank)
{
    const char *tmp = getenv("TMPDIR");
    char path[PATH_MAX] = "", *root;
    int err = 0, first;

    if (!wanted())
        return 0;
    if (rank == 0) {
        snprintf(path, sizeof path, "%s/starpipe-fxt-XXXXXX", tmp && *tmp ? tmp : "/tmp");
        if (!mkdtemp(path)) {
            err =
                sp_error(errno,
                         "cannot make a directory for StarPU's trace in %s: %s; say with " VARIABLE
                         " where it goes",
                         tmp && *tmp ? tmp : "/tmp", strerror(errno));
            path[0] = '\0';
        }
    }
    root = sp_transport_root_text(path);
    if (!root || (*root && !have_dir(root)))
        err = sp_error(EACCES,
                       "rank %d: StarPU's trace cannot go to %s: it is no directory of this user; "
                       "say with " VARIABLE " where it goes",
                       rank, root ? root : "");
    if (sp_transport_agree(err, &first))
        err = err ? err : -EACCES;
    else
        err = sp_starpu_environment_change(VARIABLE, root);
    if (!err && rank == 0)
        sp_warn("StarPU's trace goes to %s, as " VARIABLE
                " does not say where to: 'starpipe trace fxt %s' reads it",
                root, root);
    free(root);
    return err;
}
