#define _GNU_SOURCE /* asprintf */
/* starpipe trace: what other programs recorded of a run, brought into the form that a tool
 * reads. */
#include "cli/commands.h"
#include "cli/options.h"
#include "sp_error.h"
#include "trace/fxt/convert.h"
#include "sinks/starpu/fxt_tool.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char PREFIX[] = "prof_file_";

/* The rank at the end of "prof_file_USER_3"; -1: no trace. */
static int rank_of(const char *name)
{
    const char *digits = strrchr(name, '_');
    char *end;
    long rank;

    if (strncmp(name, PREFIX, sizeof PREFIX - 1) || digits[1] < '0' || digits[1] > '9')
        return -1;
    rank = strtol(digits + 1, &end, 10);
    return *end || rank > INT_MAX ? -1 : (int)rank;
}

/* Puts a file into files[rank]. */
static int add_file(char **files, int most, const char *dir, const char *name)
{
    int rank = rank_of(name);

    if (rank < 0)
        return 0;
    if (rank >= most)
        return sp_error(E2BIG,
                        "trace fxt: %s/%s: this StarPU takes traces of %d processes at most "
                        "(its option --enable-fxt-max-files)",
                        dir, name, most);
    if (files[rank])
        return sp_error(EEXIST,
                        "trace fxt: %s and %s/%s are both of rank %d: take an empty "
                        "directory for each run",
                        files[rank], dir, name, rank);
    if (asprintf(&files[rank], "%s/%s", dir, name) < 0) {
        files[rank] = NULL;
        return sp_error(ENOMEM, "trace fxt: no memory for the name of %s", name);
    }
    return 0;
}

/* The traces of a directory, by rank. Their number or -errno. */
static int find_files(const char *dir, char **files, int most)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    int err = 0, n = 0;

    if (!d)
        return sp_error(errno, "trace fxt: cannot read %s: %s", dir, strerror(errno));
    while (!err && (entry = readdir(d)))
        err = add_file(files, most, dir, entry->d_name);
    closedir(d);
    while (!err && n < most && files[n])
        n++;
    for (int i = n; !err && i < most; i++)
        if (files[i])
            err = sp_error(ENOENT, "trace fxt: %s has a trace of rank %d and none of rank %d", dir,
                           i, n);
    if (!err && !n)
        err = sp_error(ENOENT,
                       "trace fxt: %s has no prof_file_*, which a run with "
                       "STARPU_FXT_TRACE=1 and STARPU_FXT_PREFIX=%s/ leaves",
                       dir, dir);
    return err ? err : n;
}

static void remove_tree(const char *dir)
{
    DIR *d = opendir(dir);
    char path[PATH_MAX];
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < (int)sizeof path)
            unlink(path); /* "." and ".." stay */
    if (d)
        closedir(d);
    rmdir(dir);
}

static void print_summary(const char *dir, const struct sp_fxt_summary *s)
{
    printf("%s: %d tasks of %d process%s", dir, s->tasks, s->ranks, s->ranks > 1 ? "es" : "");
    if (s->ranks > 1)
        printf(", %d messages; clocks %.1f us apart at most, measured to %.1f us", s->messages,
               s->offset_us, s->round_trip_us / 2);
    printf("\n");
    if (s->turned)
        printf("%d messages came before they were sent, by %.1f us at most, and take no time now\n",
               s->turned, s->turned_us);
    printf(
        "paje.trace, tasks.rec, data.rec, dag.dot, entities.csv: for StarVZ (and ViTE); "
        "tasks.csv, messages.csv, memory.csv, dependencies.csv: for examples/starvz/pipeline.R\n");
}

/* The files of StarPU's tool go into a directory of their own: one that is read half is never left
 * behind. */
static int convert_files(const char *dir, char **files, int n)
{
    char scratch[PATH_MAX];
    struct sp_fxt_summary summary;
    int err;

    if (snprintf(scratch, sizeof scratch, "%s/.fxt-XXXXXX", dir) >= (int)sizeof scratch)
        return sp_error(ENAMETOOLONG, "trace fxt: %s: %s", dir, strerror(ENAMETOOLONG));
    if (!mkdtemp(scratch))
        return sp_error(errno, "trace fxt: cannot write into %s: %s", dir, strerror(errno));
    err = sp_fxt_tool(files, n, scratch);
    err = err ? err : sp_fxt_convert(scratch, dir, n, &summary);
    remove_tree(scratch);
    if (!err)
        print_summary(dir, &summary);
    return err;
}

/* trace fxt: StarPU's traces, for StarVZ. */
static int run_fxt(int kind, int argc, char **argv)
{
    const char *dir = NULL;
    const struct sp_option options[] = {
        SP_OPTION("DIR", OPERAND, dir,
                  .help = "what a run with STARPU_FXT_TRACE=1 and "
                          "STARPU_FXT_PREFIX=DIR/ has left; the results go there",
                  .arg = "DIR"),
        {0}};
    int ret = sp_options_parse(options, "Makes what StarVZ reads of StarPU's traces of a run.",
                               argc, argv);
    int most = sp_fxt_tool_most_files(), n;
    char **files;

    (void)kind;
    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (!most) {
        sp_error(ENOSYS,
                 "trace fxt: StarPU was built without FxT; './quickstart build' builds one");
        return 2;
    }
    files = calloc((size_t)most, sizeof *files);
    if (!files)
        return 1;
    n = find_files(dir, files, most);
    ret = n < 0 ? 2 : convert_files(dir, files, n) ? 1 : 0;
    for (int i = 0; i < most; i++)
        free(files[i]);
    free(files);
    return ret;
}

static const struct sp_subcommand kinds[] = {
    {"fxt", "StarPU's traces (STARPU_FXT_TRACE=1), for StarVZ, ViTE and R"},
};

int sp_cmd_trace(int argc, char **argv)
{
    static const struct sp_subcommands c = {
        .command = "trace",
        .what = "kind",
        .operand = "KIND",
        .options = "...",
        .summary = "Brings what was recorded of a run into the form that other tools read.",
        .joint = ": ",
        .help = "what it takes",
        .sub = kinds,
        .n = sizeof kinds / sizeof *kinds,
        .run = run_fxt,
    };

    return sp_subcommands_run(&c, argc, argv);
}
