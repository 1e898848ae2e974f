#define _GNU_SOURCE /* memfd_create */
#include "policies/load/rehearsal.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The copy may take at most this much more memory: no order needs as much. */
#define MOST_BYTES ((rlim_t)8 << 30)

/* Lies in memory that both processes see. */
struct shared {
    volatile bool done;
    volatile int full; /* ops; 0: not full */
};

static struct shared *mine; /* in the copy: not NULL */

static rlim_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (f && fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages ? (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) : RLIM_INFINITY;
}

static void limit(int resource, rlim_t most)
{
    struct rlimit now;

    if (!getrlimit(resource, &now) && (now.rlim_cur == RLIM_INFINITY || now.rlim_cur > most)) {
        now.rlim_cur = most;
        setrlimit(resource, &now);
    }
}

static void go(struct shared *shared, int said, void (*fn)(void *arg), void *arg)
{
    static const int signals[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                  SIGABRT, SIGTERM, SIGINT, SIGHUP};
    rlim_t now = address_space();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sp_error_end_by(NULL); /* the copy must not end the other processes */
    setpgid(0, 0);         /* so signals that it sends to its group stay here */
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    limit(RLIMIT_CORE, 0);
    if (now != RLIM_INFINITY)
        limit(RLIMIT_AS, now + MOST_BYTES);
    if (said >= 0) {
        dup2(said, STDOUT_FILENO);
        dup2(said, STDERR_FILENO);
    }
    mine = shared;
    fn(arg);
    fflush(NULL);
    shared->done = true;
    _exit(0);
}

/* Waits for the copy to end and returns its status. False: it did not end within `seconds`, and was
 * killed. */
static bool await(pid_t copy, int seconds, int *status)
{
    struct timespec start, now, pause = {.tv_nsec = 100000};

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        pid_t got = waitpid(copy, status, WNOHANG);

        if (got == copy)
            return true;
        if (got < 0 && errno != EINTR) {
            *status = 0;
            return true;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec >= seconds + (now.tv_nsec < start.tv_nsec)) {
            kill(-copy, SIGKILL); /* with the processes that it started */
            kill(copy, SIGKILL);
            while (waitpid(copy, status, 0) < 0 && errno == EINTR)
                continue;
            return false;
        }
        nanosleep(&pause, NULL);
        sp_activity_touch();
        if (pause.tv_nsec < 5000000)
            pause.tv_nsec *= 2;
    }
}

/* The cause that ended the copy; 0: the call came back. */
static int cause_of(const struct shared *shared, int status)
{
    if (shared->full)
        return SP_CALL_FULL;
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    return shared->done ? 0 : SP_CALL_EXIT;
}

static void print_said(int said)
{
    char text[4096];
    ssize_t n;

    for (off_t at = 0; at < 16 * (off_t)sizeof text; at += n) {
        n = pread(said, text, sizeof text, at);
        if (n <= 0 || write(STDERR_FILENO, text, (size_t)n) < 0)
            return;
    }
}

int sp_rehearse(void (*fn)(void *arg), void *arg, int seconds, int *ops)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, before;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int said = memfd_create("plugin", MFD_CLOEXEC), status = 0, cause = 0;
    pid_t copy = -1;

    if (shared == MAP_FAILED)
        goto out;
    fflush(NULL);
    sigaction(SIGCHLD, &standard, &before);
    copy = fork();
    if (copy == 0)
        go(shared, said, fn, arg);
    if (copy > 0) {
        cause = await(copy, seconds, &status) ? cause_of(shared, status) : SIGALRM;
        *ops = shared->full;
        if (cause && said >= 0)
            print_said(said);
    }
    sigaction(SIGCHLD, &before, NULL);
    munmap(shared, sizeof *shared);
out:
    if (said >= 0)
        close(said);
    return cause;
}

void sp_rehearsal_full(int ops)
{
    if (!mine)
        return;
    mine->full = ops;
    _exit(0);
}

void sp_rehearsal_exits(void)
{
    if (mine)
        _exit(0);
}
