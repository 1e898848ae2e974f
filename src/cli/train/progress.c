#include "cli/train/progress.h"
#include "cli/print.h"
#include "cli/train/interrupt.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "transport/launcher.h"
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool unfinished; /* true while the terminal has a line without its end */

/* The parent of a process, and the name of the process's command; 0: not known. */
static pid_t parent_of(pid_t pid, char name[64])
{
    char path[64], line[512], *end;
    FILE *f;
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    /* pid (name) state parent; the name may hold anything, so the last bracket ends it */
    if (fgets(line, sizeof line, f) && (end = strrchr(line, ')')) && strchr(line, '(')) {
        snprintf(name, 64, "%.*s", (int)(end - strchr(line, '(') - 1), strchr(line, '(') + 1);
        if (sscanf(end + 1, " %*c %d", &parent) != 1)
            parent = 0;
    }
    fclose(f);
    return parent;
}

static bool is_launcher(const char *name)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "prun"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* True if a launcher runs on this machine and its output is a terminal. */
static bool launcher_on_terminal(void)
{
    char name[64] = "", path[64], target[256];
    pid_t pid = getppid();

    for (pid_t up; pid > 1; pid = up) {
        ssize_t n;

        up = parent_of(pid, name);
        if (!is_launcher(name))
            continue;
        snprintf(path, sizeof path, "/proc/%d/fd/1", (int)pid);
        n = readlink(path, target, sizeof target - 1);
        if (n < 0)
            return false;
        target[n] = 0;
        return !strncmp(target, "/dev/pts/", 9) || !strncmp(target, "/dev/tty", 8) ||
               !strcmp(target, "/dev/console");
    }
    return false;
}

bool sp_progress_on_terminal(void)
{
    return sp_rewrites_lines(STDOUT_FILENO) &&
           (sp_launcher_find().size == 0 || launcher_on_terminal());
}

int sp_progress_columns(int most)
{
    struct winsize size = {0};

    if (!sp_progress_on_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 40)
        return most;
    return size.ws_col < most ? size.ws_col : most;
}

static bool rewrites(enum sp_progress how)
{
    static int known = -1;

    if (known < 0)
        known = how == SP_PROGRESS_LINE || (how == SP_PROGRESS_AUTO && sp_progress_on_terminal());
    return known;
}

/* True if an unfinished line must be ended now; the caller then ends it. */
static bool take_unfinished(void)
{
    return __atomic_exchange_n(&unfinished, false, __ATOMIC_RELAXED);
}

/* False if standard output is full: a launcher stops reading once it was told to end. */
static bool stdout_takes_more(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return poll(&out, 1, 0) != 0;
}

void sp_progress_show(enum sp_progress how, const struct sp_progress_step *s, bool first)
{
    static double last_us;
    bool line = rewrites(how), end = s->done == s->steps;
    double now = sp_now_us();
    char left[SP_TEXT_DURATION];

    if (!end && !first && now - last_us < (line ? 1e5 : 5e6))
        return;
    if (!end && !stdout_takes_more())
        return; /* a step must not wait for a reader */
    if (line)
        sp_error_follows(take_unfinished);
    last_us = now;
    printf("%sstep %d/%d  loss %.4f", line ? "\r" : "", s->done, s->steps, s->loss);
    if (!isnan(s->eval_loss))
        printf("  eval %.4f", s->eval_loss);
    printf("  %.0f tokens/s  bubble %.1f %%  %s left", s->tokens_per_s,
           sp_figure(100 * s->bubble, 1), sp_text_duration(s->left_s, left));
    unfinished = line && !end;
    printf("%s%s", line ? "\033[K" : "", unfinished ? "" : "\n");
    fflush(stdout);
}

void sp_progress_say(enum sp_progress how, const char *format, ...)
{
    bool over = rewrites(how) && !(sp_interrupt_asked() & SP_ASK_INT); /* Ctrl-C left "^C" */
    va_list ap;

    if (take_unfinished())
        fputs(over ? "\r\033[K" : "\n", stdout);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
    sp_progress_flush();
}

void sp_progress_flush(void)
{
    if (stdout_takes_more())
        fflush(stdout);
}
