#define _GNU_SOURCE /* getline */
#include "offload/host_memory.h"
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------------------------- */

static FILE *open_file(const char *format, ...)
{
    char path[PATH_MAX];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(path, sizeof path, format, ap);
    va_end(ap);
    return n >= 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* The number after the first line beginning `key`, -1: there is none. Closes the file. */
static int64_t number_after(FILE *f, const char *key)
{
    char line[512];
    long long value;
    int64_t found = -1;

    while (f && found < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), " %lld", &value) == 1)
            found = value;
    if (f)
        fclose(f);
    return found;
}

/* A file of /proc whose lines are "key: N kB". */
static int64_t proc_bytes(const char *root, const char *file, const char *key)
{
    int64_t kib = number_after(open_file("%s/proc/%s", root, file), key);

    return kib < 0 ? -1 : 1024 * kib;
}

__attribute__((format(printf, 3, 4))) static void lower(struct sp_memory_limit *limit,
                                                        int64_t bytes, const char *format, ...)
{
    va_list ap;

    if (bytes >= limit->bytes)
        return;
    limit->bytes = bytes > 0 ? bytes : 0;
    va_start(ap, format);
    vsnprintf(limit->origin, sizeof limit->origin, format, ap);
    va_end(ap);
}

/* ---- the machine ----------------------------------------------------------------------------------- */

static void read_machine(const char *root, struct sp_host_memory *m)
{
    int64_t total = proc_bytes(root, "meminfo", "MemTotal:");
    int64_t unused = proc_bytes(root, "meminfo", "MemAvailable:");
    int64_t promised = proc_bytes(root, "meminfo", "CommitLimit:");
    int64_t taken = proc_bytes(root, "meminfo", "Committed_AS:");

    if (total < 0 && !*root)
        total = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    if (unused < 0 && !*root)
        unused = (int64_t)sysconf(_SC_AVPHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    if (total > 0)
        lower(&m->node, total, "this machine");
    if (unused >= 0)
        lower(&m->node_free, unused, "this machine");
    /* 2: the system promises no more than it has */
    if (number_after(open_file("%s/proc/sys/vm/overcommit_memory", root), "") == 2 &&
        promised >= 0 && taken >= 0) {
        lower(&m->node, promised, "vm.overcommit_memory=2");
        lower(&m->node_free, promised - taken, "vm.overcommit_memory=2");
    }
}

/* ---- control groups -------------------------------------------------------------------------------- */

/* A hierarchy of control groups: the unified one (v2), or that of memory (v1). */
struct hierarchy {
    bool unified;
    const char *limits[2]; /* files of a group; NULL: no second one */
    const char *usage, *cache;
};

static const struct hierarchy hierarchies[] = {
    {true, {"memory.max", "memory.high"}, "memory.current", "inactive_file"},
    {false, {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", "total_inactive_file"},
};

static void read_group(const char *root, const char *dir, const struct hierarchy *h,
                       struct sp_host_memory *m)
{
    int64_t used = number_after(open_file("%s%s/%s", root, dir, h->usage), "");
    int64_t cache = number_after(open_file("%s%s/memory.stat", root, dir), h->cache);

    if (cache > 0 && cache < used)
        used -= cache; /* pages of files, which the system reclaims */
    for (int i = 0; i < 2 && h->limits[i]; i++) {
        int64_t limit = number_after(open_file("%s%s/%s", root, dir, h->limits[i]), "");

        if (limit < 0) /* "max" */
            continue;
        lower(&m->node, limit, "its control group (%s/%s)", dir, h->limits[i]);
        if (used >= 0)
            lower(&m->node_free, limit - used, "its control group (%s/%s)", dir, h->limits[i]);
    }
}

/* True if `word` is one of a list with commas. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, n) && strchr(",\n ", at[n]))
            return true;
    return false;
}

/* Finds the group of this process in a hierarchy, as /proc/self/cgroup names it. */
static bool find_group(const char *root, const struct hierarchy *h, char group[PATH_MAX])
{
    FILE *f = open_file("%s/proc/self/cgroup", root);
    char *line = NULL;
    size_t room = 0;
    bool found = false;

    while (f && !found && getline(&line, &room, f) > 0) {
        char *controllers = strchr(line, ':'),
             *path = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = h->unified ? !controllers[1] : has_word(controllers + 1, "memory");
        if (found)
            found = snprintf(group, PATH_MAX, "%s", path) < PATH_MAX;
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

/* A mounted hierarchy: the mount point, and the group that is mounted there. */
struct mount {
    char top[PATH_MAX], at[PATH_MAX];
};

/* A line of mountinfo: "id parent device top at options ... - type source options". */
static bool is_mount_of(const char *line, const struct hierarchy *h, struct mount *mount)
{
    const char *rest = strstr(line, " - ");
    char type[32], options[512];

    if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
        sscanf(line, "%*s %*s %*s %4095s %4095s", mount->top, mount->at) != 2)
        return false;
    return h->unified ? !strcmp(type, "cgroup2")
                      : !strcmp(type, "cgroup") && has_word(options, "memory");
}

static bool find_mount(const char *root, const struct hierarchy *h, struct mount *mount)
{
    FILE *f = open_file("%s/proc/self/mountinfo", root);
    char *line = NULL;
    size_t room = 0;
    bool found = false;

    while (f && !found && getline(&line, &room, f) > 0)
        found = is_mount_of(line, h, mount);
    free(line);
    if (f)
        fclose(f);
    return found;
}

/* Writes the directory of the group, as far as it is visible. In a container the mount is the group
 * itself, whatever its name is outside. */
static void place_group(const char *group, const struct mount *mount, char dir[PATH_MAX])
{
    size_t top = strcmp(mount->top, "/") ? strlen(mount->top) : 0;
    bool below = !strncmp(group, mount->top, top) && (!group[top] || group[top] == '/') &&
                 !strstr(group, "/..");

    if (!below || snprintf(dir, PATH_MAX, "%s%s", mount->at, group + top) >= PATH_MAX)
        snprintf(dir, PATH_MAX, "%s", mount->at);
}

static void read_groups(const char *root, const struct hierarchy *h, struct sp_host_memory *m)
{
    char group[PATH_MAX], dir[PATH_MAX];
    struct mount mount;

    if (!find_group(root, h, group) || !find_mount(root, h, &mount))
        return;
    place_group(group, &mount, dir);
    for (;;) { /* up to the mount point */
        size_t n = strlen(dir);

        while (n > 1 && dir[n - 1] == '/')
            dir[--n] = '\0';
        read_group(root, dir, h, m);
        if (n <= strlen(mount.at))
            break;
        *strrchr(dir, '/') = '\0';
    }
}

/* ---- the process ----------------------------------------------------------------------------------- */

static void read_limits(const char *root, struct sp_host_memory *m)
{
    static const struct {
        const char *key, *mapped, *name;
    } limits[] = {{"Max address space", "VmSize:", "ulimit -v"},
                  {"Max data size", "VmData:", "ulimit -d"}};

    for (int i = 0; i < 2; i++) {
        int64_t bytes = number_after(open_file("%s/proc/self/limits", root), limits[i].key);
        int64_t mapped = proc_bytes(root, "self/status", limits[i].mapped);

        if (bytes < 0) /* "unlimited" */
            continue;
        lower(&m->process, bytes - (mapped > 0 ? mapped : 0), "%s", limits[i].name);
    }
}

void sp_host_memory_read(const char *root, struct sp_host_memory *m)
{
    const struct sp_memory_limit none = {.bytes = INT64_MAX};

    *m = (struct sp_host_memory){none, none, none};
    read_machine(root, m);
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
        read_groups(root, &hierarchies[i], m);
    read_limits(root, m);
}

/* ---- shares ---------------------------------------------------------------------------------------- */

/* The smaller of a share of the node's limit and the process's own limit. */
static struct sp_memory_limit least(const struct sp_memory_limit *node,
                                    const struct sp_memory_limit *process, int processes)
{
    struct sp_memory_limit share = *node;

    if (share.bytes < INT64_MAX)
        share.bytes = share.bytes / 10 * 9 / (processes > 0 ? processes : 1);
    return process->bytes < share.bytes ? *process : share;
}

struct sp_memory_limit sp_host_memory_share(const struct sp_host_memory *m, int processes)
{
    return least(&m->node, &m->process, processes);
}

struct sp_memory_limit sp_host_memory_free_share(const struct sp_host_memory *m, int processes)
{
    return least(&m->node_free, &m->process, processes);
}

struct sp_memory_limit sp_host_memory_has(int processes)
{
    struct sp_host_memory m;

    sp_host_memory_read("", &m);
    return sp_host_memory_share(&m, processes);
}

struct sp_memory_limit sp_host_memory_has_free(int processes)
{
    struct sp_host_memory m;

    sp_host_memory_read("", &m);
    return sp_host_memory_free_share(&m, processes);
}
