/*
 * A search shows on a terminal how far it is: standard error has a line of the layouts tried and the
 * best of them. SIGINT ends it with what it has; a second one ends the program.
 */
#include "cli/plan/progress.h"
#include "cli/print.h"
#include "sp_text.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static struct {
    bool shows, shown;
    int tried;
    double last_s; /* when the line was written last */
    struct sigaction before;
} progress;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void show_progress(const struct sp_found *best)
{
    enum { COLUMNS = 79 };
    char schedule[SP_TEXT_SHOWN], step[SP_CELL], line[2 * SP_CELL];
    int n = snprintf(line, sizeof line, "plan: %s tried", SP_COUNT(progress.tried, "layout"));

    if (best && best->fits) {
        sp_cell_duration(best->step_ms, step);
        snprintf(line + n, sizeof line - (size_t)n, ", best so far: %s on %s, %s a step",
                 sp_text_show(best->schedule, schedule, sizeof schedule),
                 SP_COUNT(best->stages, "stage"), step);
    }
    fprintf(stderr, "\r%.*s\033[K", COLUMNS, line);
    fflush(stderr);
    progress.shown = true;
}

static bool tell_progress(void *arg, int tried, const struct sp_found *best, int n)
{
    const double EVERY_S = 0.2;
    double s = sp_clock_s();

    (void)arg;
    progress.tried = tried > progress.tried ? tried : progress.tried;
    if (progress.shows && s - progress.last_s > EVERY_S) {
        show_progress(n ? best : NULL);
        progress.last_s = s;
    }
    return !interrupted;
}

void sp_plan_progress_begin(struct sp_search *want, const struct sp_ranking *r)
{
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};

    (void)r;
    progress.shows = sp_rewrites_lines(STDERR_FILENO);
    progress.last_s = sp_clock_s();
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, NULL, &progress.before);
    if (progress.before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &act, NULL);
    want->go_on = tell_progress;
}

bool sp_plan_progress_end(void)
{
    sigaction(SIGINT, &progress.before, NULL);
    if (progress.shown)
        fputs("\r\033[K", stderr);
    if (interrupted)
        fprintf(stderr, "plan: stopped after %s; this is the best so far\n",
                SP_COUNT(progress.tried, "layout"));
    return interrupted;
}
