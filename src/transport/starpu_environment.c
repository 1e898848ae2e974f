#define _GNU_SOURCE /* environ, nftw */
#include "transport/starpu_environment.h"
#include "sp_error.h"
#include <starpu.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The variables that stay: they control traces, statistics, caches and performance. All other
 * variables of StarPU's are set aside, because workers, cores, order, memory nodes and the world
 * are not for users to choose. */
enum kind { TEXT, NUMBER, FILE_NAME }; /* StarPU ends the program if a value is of another kind */

static const struct {
    const char *name;
    enum kind kind;
} respected[] = {
    {"STARPU_BACKOFF_MAX", NUMBER},
    {"STARPU_BACKOFF_MIN", NUMBER},
    {"STARPU_BUS_CALIBRATE", NUMBER},
    {"STARPU_BUS_STATS", NUMBER},
    {"STARPU_BUS_STATS_FILE", TEXT},
    {"STARPU_CALIBRATE", NUMBER},
    {"STARPU_CODELET_PROFILING", NUMBER},
    {"STARPU_CUDA_PIPELINE", NUMBER},
    {"STARPU_DISABLE_ASYNCHRONOUS_COPY", NUMBER},
    {"STARPU_DISABLE_ASYNCHRONOUS_CUDA_COPY", NUMBER},
    {"STARPU_DISABLE_PINNING", NUMBER},
    {"STARPU_ENABLE_CUDA_GPU_GPU_DIRECT", NUMBER},
    {"STARPU_ENABLE_STATS", NUMBER},
    {"STARPU_FXT_EVENTS", TEXT},
    {"STARPU_FXT_PREFIX", TEXT},
    {"STARPU_FXT_SUFFIX", TEXT},
    {"STARPU_FXT_TRACE", NUMBER},
    {"STARPU_GENERATE_TRACE", NUMBER},
    {"STARPU_GENERATE_TRACE_OPTIONS", TEXT},
    {"STARPU_HOME", TEXT},
    {"STARPU_HOSTNAME", FILE_NAME},
    {"STARPU_LIMIT_CPU_MEM", NUMBER}, /* see `host_limit` */
    {"STARPU_LIMIT_CUDA_MEM", NUMBER},
    {"STARPU_MAX_MEMORY_USE", NUMBER},
    {"STARPU_MEMORY_STATS", NUMBER},
    {"STARPU_MINIMUM_CLEAN_BUFFERS", NUMBER},
    {"STARPU_MPI_GPUDIRECT", NUMBER},
    {"STARPU_NCPU", NUMBER}, /* only info uses it: runs choose their number of workers */
    {"STARPU_NCUDA", NUMBER},
    {"STARPU_PERF_MODEL_DIR", TEXT},
    {"STARPU_PERF_MODEL_PATH", TEXT},
    {"STARPU_PREFETCH", NUMBER},
    {"STARPU_PROFILING", NUMBER},
    {"STARPU_PROF_TOOL", TEXT},
    {"STARPU_RAND_SEED", NUMBER},
    {"STARPU_SCHED_ALPHA", TEXT}, /* a fraction */
    {"STARPU_SCHED_BETA", TEXT},
    {"STARPU_SCHED_GAMMA", TEXT},
    {"STARPU_SILENT", NUMBER},
    {"STARPU_STATS", NUMBER},
    {"STARPU_SUBALLOCATOR", NUMBER},
    {"STARPU_TARGET_CLEAN_BUFFERS", NUMBER},
    {"STARPU_TRACE_BUFFER_SIZE", NUMBER},
    {"STARPU_WORKER_STATS", NUMBER},
    {"STARPU_WORKER_STATS_FILE", TEXT},
};

/* A variable as it was before. */
struct before {
    char *name, *value; /* value NULL: not set */
};

static struct before *changed;
static int n_changed;
static char own[PATH_MAX]; /* the directory that StarPU got; "": none */

static int change(const char *name, const char *value)
{
    struct before *more = realloc(changed, (size_t)(n_changed + 1) * sizeof *more), *b;
    const char *old = getenv(name);

    if (!more)
        return -ENOMEM;
    changed = more;
    b = &changed[n_changed];
    *b = (struct before){strdup(name), old ? strdup(old) : NULL};
    n_changed++;
    if (!b->name || (old && !b->value))
        return -ENOMEM;
    return (value ? setenv(name, value, 1) : unsetenv(name)) ? -ENOMEM : 0;
}

int sp_starpu_environment_change(const char *name, const char *value)
{
    int err = change(name, value);

    return err ? sp_error(-err, "no memory for the environment") : 0;
}

int sp_starpu_environment_default(const char *name, const char *value)
{
    return getenv(name) ? 0 : sp_starpu_environment_change(name, value);
}

/* ---- the variables --------------------------------------------------------------------------- */

static bool is_of_kind(const char *text, enum kind kind)
{
    char *end;

    if (kind == FILE_NAME)
        return *text && !strchr(text, '/');
    return kind == TEXT || (strtol(text, &end, 10) >= 0 && end != text && !*end);
}

/* True if a variable stays as it is; one with an unreadable value goes, after one line. */
static bool stays(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof respected / sizeof *respected; i++) {
        if (strcmp(name, respected[i].name))
            continue;
        if (is_of_kind(value, respected[i].kind))
            return true;
        sp_warn("%s=%s in the environment is no %s: left out", name, value,
                respected[i].kind == NUMBER ? "number" : "name");
        return false;
    }
    return false;
}

/* Returns the name of the first variable that must go, to be freed; NULL: all stay. */
static char *first_to_go(void)
{
    for (char **at = environ; *at; at++) {
        size_t n = strcspn(*at, "=");
        char *name = strncmp(*at, "STARPU_", 7) ? NULL : strndup(*at, n);

        if (name && !stays(name, *at + n + 1))
            return name;
        free(name);
    }
    return NULL;
}

static int set_aside(void)
{
    int err = 0;

    for (char *name; !err && (name = first_to_go()); free(name))
        err = change(name, NULL);
    return err;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* True if a file of some size can be written there. */
static bool can_write(const char *dir)
{
    static const char block[4096];
    char path[PATH_MAX];
    bool wrote;
    int fd;

    if (snprintf(path, sizeof path, "%s/starpipe-XXXXXX", dir) >= (int)sizeof path)
        return false;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return false;
    wrote = write(fd, block, sizeof block) == (ssize_t)sizeof block;
    unlink(path);
    return !close(fd) && wrote;
}

/* Makes `dir` and the directories above it. */
static bool make_path(const char *dir)
{
    char path[PATH_MAX];
    struct stat st;

    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return false;
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777); /* errors show in the stat at the end */
        *slash = '/';
    }
    mkdir(path, 0777);
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* True if StarPU can make its files below `dir`. */
static bool holds_models(const char *dir)
{
    static const char *const parts[] = {"bus", "codelets"};
    char path[PATH_MAX];

    for (int i = 0; i < 2; i++)
        if (snprintf(path, sizeof path, "%s/%s", dir, parts[i]) >= (int)sizeof path ||
            !make_path(path) || !can_write(path))
            return false;
    return true;
}

static bool is_usable(const char *home)
{
    char path[PATH_MAX];

    return *home && snprintf(path, sizeof path, "%s/.starpu/sampling", home) < (int)sizeof path &&
           holds_models(path);
}

/* Looks where StarPU looks; versions differ in which of the first two they prefer. */
static bool home_is_usable(void)
{
    const char *models = getenv("STARPU_PERF_MODEL_DIR"), *cache = getenv("XDG_CACHE_HOME");
    const char *own_home = getenv("STARPU_HOME"), *home = getenv("HOME");

    if ((models && !holds_models(models)) || (cache && !is_usable(cache)) ||
        (own_home && !is_usable(own_home)))
        return false;
    return cache || own_home || (home && is_usable(home)); /* without any StarPU would use /tmp */
}

/* Makes a directory for StarPU in the first place that can be written. 0 or -errno. */
static int make_own(void)
{
    const char *places[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm", "."};
    int err = 0;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i] || !*places[i] ||
            snprintf(own, sizeof own, "%s/starpipe-starpu-XXXXXX", places[i]) >= (int)sizeof own)
            continue;
        if (mkdtemp(own) && can_write(own))
            return 0;
        err = errno;
        rmdir(own);
    }
    own[0] = '\0';
    return sp_error(
        err ? err : ENOENT,
        "no directory for StarPU's files: the home directory, TMPDIR and /tmp cannot be "
        "written: %s; set STARPU_HOME",
        strerror(err ? err : ENOENT));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

void sp_starpu_environment_remove(void)
{
    if (own[0])
        nftw(own, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    own[0] = '\0';
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Moves StarPU's home to `own`. Figures there vanish with the directory, so calibration is off. */
static int move_home(void)
{
    int err = change("XDG_CACHE_HOME", own);

    err = err ? err : change("STARPU_HOME", own);
    err = err ? err : change("STARPU_PERF_MODEL_DIR", NULL);
    return err ? err : change("STARPU_CALIBRATE", NULL);
}

int sp_starpu_environment_set(struct starpu_conf *conf, bool host_limit)
{
    bool usable = home_is_usable();
    int err = usable ? 0 : make_own();

    if (err)
        return err;
    err = set_aside();
    /* threads are bound by graphs/placement.c, or sleep */
    err = err ? err : change("STARPU_WORKERS_NOBIND", "1");
    err = err ? err : change("STARPU_WORKERS_GETBIND", "0");
    err = err ? err : change("STARPU_MPI_NOBIND", "1");
    err = err || getenv("STARPU_SILENT") ? err : change("STARPU_SILENT", "1");
    err = err || host_limit ? err : change("STARPU_LIMIT_CPU_MEM", NULL);
    err = err || usable ? err : move_home();
    if (err) {
        sp_starpu_environment_restore();
        return sp_error(-err, "no memory for the environment");
    }
    starpu_conf_init(conf);
    return 0;
}

static void put_back(struct before *b)
{
    if (b->name && b->value)
        setenv(b->name, b->value, 1);
    else if (b->name)
        unsetenv(b->name);
    free(b->name);
    free(b->value);
}

void sp_starpu_environment_started(void)
{
    int kept = 0;

    for (int i = 0; i < n_changed; i++)
        if (changed[i].name && !strncmp(changed[i].name, "STARPU_", 7))
            changed[kept++] = changed[i];
        else
            put_back(&changed[i]);
    n_changed = kept;
}

void sp_starpu_environment_restore(void)
{
    while (n_changed > 0)
        put_back(&changed[--n_changed]);
    free(changed);
    changed = NULL;
    sp_starpu_environment_remove();
}
