#include "train/run/log_file.h"
#include "sp_error.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

static int log_stdout = STDOUT_FILENO;

bool sp_log_is_stdout(const char *path)
{
    return path && !strcmp(path, "-");
}

int sp_log_take_stdout(void)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);

    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return sp_error(errno, "--log -: cannot take standard output: %s", strerror(errno));
    log_stdout = fd;
    return 0;
}

static int open_stdout(FILE **log)
{
    int fd = fcntl(log_stdout, F_DUPFD_CLOEXEC, 0);

    *log = fd < 0 ? NULL : fdopen(fd, "a");
    if (*log)
        return 0;
    if (fd >= 0)
        close(fd);
    return sp_error(errno, "cannot write the log on standard output: %s", strerror(errno));
}

/* True if it begins with a plan, or with a part of that line because the run was killed while it
 * wrote it. */
static bool begins_log(FILE *f)
{
    enum { MOST = 1 << 20 };
    static const char start[] = "{\"plan\":";
    char *head = malloc(MOST), *end;
    bool ours = false;

    if (head) {
        size_t n = fread(head, 1, MOST, f);
        json_t *line = NULL;

        end = memchr(head, '\n', n);
        if (end)
            line = json_loadb(head, (size_t)(end - head), 0, NULL);
        ours = end ? json_object_get(line, "plan") != NULL
                   : n >= strlen(start) && !memcmp(head, start, strlen(start));
        json_decref(line);
    }
    free(head);
    rewind(f);
    return ours;
}

bool sp_log_is_log(int fd)
{
    int again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *f = again < 0 ? NULL : fdopen(again, "r");
    bool is = f && begins_log(f);

    if (f)
        fclose(f);
    else if (again >= 0)
        close(again);
    return is;
}

int sp_log_shift(const json_t *line, int before)
{
    if (!json_object_get(line, "plan"))
        return before;
    return json_integer_value(json_object_get(line, "first_step")) == 1 ? 0 : SP_LOG_SHIFT_OLD;
}

/* The number of the step that a line is about; -1: none. */
static json_int_t step_of(const json_t *line, int shift)
{
    const json_t *step = json_object_get(line, "step");

    return json_is_integer(step) ? json_integer_value(step) + shift : -1;
}

/* A line of the log: the one that ends the part to keep, or that of the last step so far. */
struct mark {
    int line;
    json_int_t step; /* -1: the line is torn */
};

static int out_of_order(const char *path, int line, json_int_t step, const struct mark *m, int done)
{
    char what[64] = "which is torn";

    if (m->step >= 0)
        snprintf(what, sizeof what, "step %lld", (long long)m->step);
    return sp_error(EINVAL,
                    "log %s is out of order: line %d, step %lld, comes after line %d, %s; to go on "
                    "at step %d give --log another file",
                    path, line, (long long)step, m->line, what, done + 1);
}

/* Finds how many bytes belong to the first `done` steps. */
static int scan(FILE *f, const char *path, int done, off_t *keep)
{
    struct mark last = {0}, cut = {0};
    int number = 0, shift = SP_LOG_SHIFT_OLD, err = 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;

    *keep = 0;
    while (!err && (len = getline(&line, &cap, f)) >= 0) {
        json_t *json = json_loadb(line, (size_t)len, 0, NULL);
        bool torn = !json_is_object(json) || line[len - 1] != '\n';
        json_int_t step;

        shift = sp_log_shift(json, shift);
        step = torn ? -1 : step_of(json, shift);
        json_decref(json);
        number++;
        if (step >= 0 && step <= done && (cut.line || step < last.step))
            err = out_of_order(path, number, step, cut.line ? &cut : &last, done);
        if (!cut.line && (torn || step > done))
            cut = (struct mark){number, step};
        if (!cut.line)
            *keep += len;
        if (step >= 0)
            last = (struct mark){number, step};
    }
    if (!err && ferror(f))
        err = sp_error(errno, "cannot read log %s: %s", path, strerror(errno));
    free(line);
    return err;
}

/* For a regular file: checks that it may be a log of this run, and finds how much of it stays. */
static int examine(const char *path, int done, off_t *keep)
{
    FILE *f = fopen(path, "r");
    int err = 0;

    *keep = 0;
    if (!f)
        return sp_error(errno, "cannot read log %s: %s", path, strerror(errno));
    if (!begins_log(f))
        err = sp_error(EINVAL, "--log %s exists and is no log of starpipe; remove it first", path);
    else if (done != SP_LOG_NEW)
        err = scan(f, path, done, keep);
    fclose(f);
    return err;
}

int sp_log_check(const char *path, int done)
{
    struct stat st;
    off_t keep;

    if (sp_log_is_stdout(path) || stat(path, &st) || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    return examine(path, done, &keep);
}

/* Cuts a regular file that is open for writing; does nothing to others. */
static int cut(int fd, const char *path, int done)
{
    struct stat st;
    off_t keep;
    int err;

    if (fstat(fd, &st))
        return sp_error(errno, "cannot write log %s: %s", path, strerror(errno));
    if (S_ISFIFO(st.st_mode))
        return sp_error(EINVAL, "cannot write log %s: it is a FIFO", path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    err = examine(path, done, &keep);
    if (!err && ftruncate(fd, keep))
        err = sp_error(errno, "cannot cut log %s: %s", path, strerror(errno));
    return err;
}

/* Names the process that holds a lock on the file, as the kernel lists it: " (process 12,
 * name)", or "". */
static void name_holder(const struct stat *st, char *out, size_t n)
{
    unsigned long long inode;
    unsigned int major, minor;
    FILE *f = fopen("/proc/locks", "r");
    char line[256], path[64], name[64] = "";
    long pid = 0;

    out[0] = '\0';
    while (f && !pid && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s FLOCK %*s %*s %ld %x:%x:%llu", &pid, &major, &minor, &inode) != 4 ||
            inode != st->st_ino || major != major(st->st_dev) || minor != minor(st->st_dev))
            pid = 0;
    if (f)
        fclose(f);
    if (pid <= 0) /* no holder, or one that cannot be seen from here */
        return;
    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    f = fopen(path, "r");
    if (f && fgets(name, sizeof name, f))
        name[strcspn(name, "\n")] = '\0';
    if (f)
        fclose(f);
    snprintf(out, n, " (process %ld%s%s)", pid, name[0] ? ", " : "", name);
}

/* 0; -EAGAIN: the name meanwhile leads to another file; or -errno after one line on stderr. */
static int lock(int fd, const char *path)
{
    enum { TRIES = 10 }; /* a reader locks it for a moment, to see if a run still writes it */
    struct stat here, named;
    char holder[128];
    int err;

    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
        err = errno;
        if (err == EINTR)
            continue;
        if (err != EWOULDBLOCK) {
            sp_warn("log %s cannot be locked (%s): make sure that no other run writes it", path,
                    strerror(err));
            return 0;
        }
        if (i < TRIES) {
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
            continue;
        }
        fstat(fd, &here);
        name_holder(&here, holder, sizeof holder);
        return sp_error(EBUSY, "--log %s: another run writes it%s: give --log another file", path,
                        holder[0] ? holder : ", its lock is taken");
    }
    if (fstat(fd, &here) || stat(path, &named) || here.st_ino != named.st_ino ||
        here.st_dev != named.st_dev)
        return -EAGAIN;
    return 0;
}

int sp_log_take(const char *path, struct sp_log_file *log)
{
    struct stat st;
    int err, fd;

    log->fd = -1;
    if (sp_log_is_stdout(path))
        return 0;
    do {
        log->made = access(path, F_OK) != 0;
        /* O_NONBLOCK, in case it has become a FIFO since it was checked */
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
        if (fd < 0)
            return sp_error(errno, "cannot write log %s: %s", path, strerror(errno));
        err = !fstat(fd, &st) && S_ISREG(st.st_mode) ? lock(fd, path) : 0;
        if (err)
            close(fd);
    } while (err == -EAGAIN);
    if (!err)
        log->fd = fd;
    return err;
}

/* Writes around the stream's buffer, which might write the rest of a line later. 0 or an errno. */
static int write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t k = write(fd, text, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EIO;
        text += k;
        n -= (size_t)k;
    }
    return 0;
}

int sp_log_write(FILE *log, const char *path, char *line)
{
    size_t n = strlen(line);
    int fd = fileno(log), err;
    bool torn = false;
    struct stat st;

    line[n] = '\n';
    if (fstat(fd, &st))
        return sp_error(errno, "cannot write log %s: %s", path, strerror(errno));
    err = write_all(fd, line, n + 1);
    if (err && S_ISREG(st.st_mode))
        torn = ftruncate(fd, st.st_size);
    return err ? sp_error(err, "cannot write log %s: %s (a line of %zu bytes%s)", path,
                          strerror(err), n + 1, torn ? ", of which a part is there" : "")
               : 0;
}

int sp_log_open(const char *path, int done, struct sp_log_file *log, FILE **out)
{
    int err;

    if (sp_log_is_stdout(path))
        return open_stdout(out);
    err = cut(log->fd, path, done);
    if (err)
        return err;
    fcntl(log->fd, F_SETFL, O_APPEND);
    *out = fdopen(log->fd, "a");
    if (!*out)
        return sp_error(errno, "cannot write log %s: %s", path, strerror(errno));
    log->fd = -1;
    return 0;
}

void sp_log_release(const char *path, struct sp_log_file *log)
{
    struct stat st;

    if (log->fd < 0)
        return;
    if (log->made && !fstat(log->fd, &st) && S_ISREG(st.st_mode) && st.st_size == 0)
        unlink(path);
    close(log->fd);
    log->fd = -1;
}
