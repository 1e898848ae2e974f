#include "sp_error.h"
#include "sp_text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int held_rank; /* > 0: holding */
static char held[1024];
static _Thread_local bool silent; /* this thread only tries something */
static _Thread_local bool alone;  /* this thread does not wait for standard output */
static void (*end_by)(int status);
static bool (*follows)(void);

/* One write, so that lines of several ranks do not interleave. The text may quote any file. */
static void say(const char *prefix, const char *fmt, va_list ap)
{
    char text[1024], all[1025] = "\n", *line = all + 1;
    size_t n = strlen(prefix), size = sizeof all - 1;

    if (silent)
        return;
    vsnprintf(text, sizeof text, fmt, ap);
    memcpy(line, prefix, n);
    sp_text_show(text, line + n, size - n - 1);
    n += strlen(line + n);
    if (held_rank > 0) {
        if (!held[0])
            memcpy(held, line, n + 1);
        return;
    }
    line[n++] = '\n';
    if (!alone)
        fflush(stdout);
    if (follows && isatty(STDERR_FILENO) && follows()) {
        line = all;
        n++;
    }
    if (write(STDERR_FILENO, line, n) < 0)
        return; /* stderr is gone: nowhere left to complain */
}

int sp_error(int err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say("starpipe: ", fmt, ap);
    va_end(ap);
    return -err;
}

void sp_error_end(const char *fmt, ...)
{
    va_list ap;

    held_rank = 0;
    va_start(ap, fmt);
    say("starpipe: ", fmt, ap);
    va_end(ap);
    sp_error_said_end();
}

void sp_error_said_end(void)
{
    if (end_by)
        end_by(1);
    _exit(1);
}

void sp_error_end_by(void (*end)(int status))
{
    end_by = end;
}

void sp_error_follows(bool (*line)(void))
{
    follows = line;
}

void sp_error_alone(void)
{
    alone = true;
}

void sp_warn(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say("starpipe: warning: ", fmt, ap);
    va_end(ap);
}

bool sp_error_quiet(bool quiet)
{
    bool was = silent;

    silent = quiet;
    return was;
}

void sp_error_hold(int rank)
{
    held_rank = rank;
    held[0] = '\0';
}

void sp_error_release(bool speaks)
{
    int rank = held_rank;

    held_rank = 0;
    if (rank > 0 && held[0] && speaks)
        sp_error(0, "rank %d: %s", rank, held + strlen("starpipe: "));
}
