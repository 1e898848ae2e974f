/* On a page a search tells what it has so far, and is ended from outside: with the worker in which it
 * runs. */
#include "cli/plan/progress.h"
#include "cli/print.h"
#include <stdio.h>

static const double EVERY_S = 0.3;

static struct {
    struct sp_ranking so_far;
    int tried;
    double last_s;
} progress;

static bool tell_progress(void *arg, int tried, const struct sp_found *best, int n)
{
    double s = sp_clock_s();
    FILE *out;

    (void)arg;
    progress.tried = tried > progress.tried ? tried : progress.tried; /* then some again, whole */
    if (s - progress.last_s < EVERY_S)
        return true;
    out = fopen("progress", "w");
    if (out) {
        fprintf(out, "%d ", progress.tried);
        if (n) {
            sp_ranking_take(&progress.so_far, best, n);
            sp_ranking_picture(&progress.so_far, out);
        } else {
            putc('\n', out);
        }
        fclose(out);
    }
    progress.last_s = sp_clock_s();
    return true;
}

void sp_plan_progress_begin(struct sp_search *want, const struct sp_ranking *r)
{
    progress.so_far = *r;
    progress.so_far.stopped = true;
    progress.tried = 0;
    progress.last_s = sp_clock_s();
    want->go_on = tell_progress;
}

bool sp_plan_progress_end(void)
{
    return false;
}
