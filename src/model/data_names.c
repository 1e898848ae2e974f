/* The files that data are in, by their names and patterns. */
#include "model/data.h"
#include "sp_error.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct names {
    char **path;
    int n;
};

static int add(struct names *to, const char *path)
{
    char **longer = realloc(to->path, ((size_t)to->n + 1) * sizeof *longer);

    if (longer)
        to->path = longer;
    if (!longer || !(longer[to->n] = strdup(path)))
        return sp_error(ENOMEM, "no memory for the names of %d files", to->n + 1);
    to->n++;
    return 0;
}

/* In the order of the alphabet. */
static int add_pattern(struct names *to, const char *pattern)
{
    glob_t found = {0};
    int rc = glob(pattern, GLOB_ERR, NULL, &found), err = 0;

    if (rc == GLOB_NOMATCH)
        err = sp_error(ENOENT, "data %s: no file has such a name", pattern);
    else if (rc)
        err = sp_error(rc == GLOB_NOSPACE ? ENOMEM : EIO, "data %s: its directory cannot be read",
                       pattern);
    for (size_t i = 0; !err && i < found.gl_pathc; i++)
        err = add(to, found.gl_pathv[i]);
    globfree(&found);
    return err;
}

/* A file that is there under this very name is no pattern. */
static int add_part(struct names *to, const char *part)
{
    if (!*part)
        return sp_error(EINVAL, "data: an empty name between two commas");
    return access(part, F_OK) && strpbrk(part, "*?[") ? add_pattern(to, part) : add(to, part);
}

int sp_data_names(const char *names, char ***paths, int *n)
{
    struct names all = {0};
    char *parts = strdup(names), *rest = parts, *part;
    int err = parts ? 0 : sp_error(ENOMEM, "no memory for the name of data %s", names);

    if (!err && !access(names, F_OK))
        err = add(&all, names);
    else
        while (!err && (part = strsep(&rest, ",")))
            err = add_part(&all, part);
    free(parts);
    if (err) {
        sp_data_free_names(all.path, all.n);
        return err;
    }
    *paths = all.path;
    *n = all.n;
    return 0;
}

void sp_data_free_names(char **paths, int n)
{
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}
