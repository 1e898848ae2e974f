/*
 * Follows a log. A run holds a lock on its log (train/run/log_file.c) while the log is open, and
 * the lock ends with the process, however it ends. If nobody holds the lock, nothing more will be
 * written.
 */
#include "cli/print.h"
#include "cli/watch/watch.h"
#include "sp_error.h"
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 200, REDRAW_MS = 100 };

struct screen {
    bool terminal;
    int drawn; /* lines, which the next picture overwrites */
    int columns, rows;
    double last_s;
};

static void measure_screen(struct screen *s)
{
    struct winsize size = {0};

    s->terminal = sp_rewrites_lines(STDOUT_FILENO);
    s->columns = 100;
    s->rows = 1 << 16;
    if (s->terminal && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= 40) {
        s->columns = size.ws_col;
        s->rows = size.ws_row > 16 ? size.ws_row : 16;
    }
}

static void draw_picture(struct screen *s, const struct sp_watched *w)
{
    if (s->drawn)
        printf("\033[%dA\r", s->drawn);
    s->drawn = sp_watch_picture(w, s->columns, s->rows, s->terminal ? "\033[K\n" : "\n", stdout);
    if (s->terminal)
        fputs("\033[J", stdout);
    fflush(stdout);
    s->last_s = sp_clock_s();
}

/* After each line: prints steps if there is no terminal, else redraws the picture now and then. */
static void show_line(struct screen *s, const struct sp_watched *w, int steps)
{
    measure_screen(s);
    if (s->terminal && 1e3 * (sp_clock_s() - s->last_s) >= REDRAW_MS)
        draw_picture(s, w);
    if (s->terminal || w->n == steps)
        return;
    sp_watch_line(w, stdout);
    putchar('\n');
    fflush(stdout);
}

/* True if a run has the file open; works for regular files alone. */
static bool is_written(int fd)
{
    if (!flock(fd, LOCK_SH | LOCK_NB)) {
        flock(fd, LOCK_UN);
        return false;
    }
    return errno == EWOULDBLOCK;
}

/* Reads the lines that are there; an unfinished line is read again later. If the log has become
 * shorter, a run began it anew, and it is read from its start. */
static int read_lines(FILE *in, struct sp_watched *w, struct screen *s, bool regular)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct stat st;
    int err = 0;

    if (regular && !fstat(fileno(in), &st) && st.st_size < ftello(in)) {
        const char *name = w->name;

        rewind(in);
        sp_watched_destroy(w);
        *w = (struct sp_watched){.name = name, .eval_step = -1};
    }
    while (!err && (n = getline(&line, &cap, in)) > 0) {
        int steps = w->n;

        if (line[n - 1] != '\n') {
            if (regular)
                fseeko(in, -(off_t)n, SEEK_CUR);
            break;
        }
        err = sp_watched_add(w, line, (size_t)n);
        if (!err && s)
            show_line(s, w, steps);
        err = err > 0 ? 0 : err;
    }
    if (!err && ferror(in))
        err = sp_error(EIO, "watch: cannot read %s", w->name);
    clearerr(in);
    free(line);
    return err;
}

int sp_watch_follow(FILE *in, struct sp_watched *w, bool once)
{
    struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    struct screen screen = {0};
    bool regular, going;
    struct stat st;
    int err;

    regular = !fstat(fileno(in), &st) && S_ISREG(st.st_mode);
    measure_screen(&screen);
    do {
        going = regular && !once && is_written(fileno(in)); /* before its last lines are read */
        err = read_lines(in, w, once ? NULL : &screen, regular);
        if (going && !err)
            nanosleep(&pause, NULL);
    } while (going && !err);
    if (!err && !w->plan)
        err = sp_error(EINVAL, "watch: %s is empty", w->name);
    if (!err && (once || screen.terminal))
        draw_picture(&screen, w);
    return err;
}
