#include "plan/search/trials.h"
#include "plan/search/trial.h"
#include "policies/registry.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 16 };

struct crew {
    const struct sp_search *want;
    struct sp_trials *trials;
    atomic_int next;
};

void sp_trials_add(struct sp_trials *t, const struct sp_found *layout)
{
    if (t->n == t->room) {
        int room = 2 * t->room + 64;
        struct sp_found *more = realloc(t->layout, (size_t)room * sizeof *more);

        t->lost |= !more;
        if (!more)
            return;
        t->layout = more;
        t->room = room;
    }
    t->layout[t->n++] = *layout;
}

static void *work(void *arg)
{
    struct crew *crew = arg;
    struct sp_trials *t = crew->trials;

    for (int i; (i = atomic_fetch_add(&crew->next, 1)) < t->n;)
        t->err[i] = sp_trial(crew->want, &t->layout[i]);
    return NULL;
}

/* What guards a call of a schedule that is not built in knows of one call at a time. */
static bool has_guarded(void)
{
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++)
        if (sp_schedule_owner(def))
            return true;
    return false;
}

void sp_trials_run(const struct sp_search *want, struct sp_trials *t)
{
    struct crew crew = {.want = want, .trials = t, .next = t->done};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores < MOST_THREADS ? (int)cores : MOST_THREADS, threads = 0;
    pthread_t thread[MOST_THREADS];
    int *err = realloc(t->err, ((size_t)t->n + 1) * sizeof *err);

    if (err)
        t->err = err;
    if (!err || t->lost) {
        t->lost = true;
        return;
    }
    most = has_guarded() ? 1 : most < t->n - t->done ? most : t->n - t->done;
    while (threads < most - 1 && !pthread_create(&thread[threads], NULL, work, &crew))
        threads++;
    work(&crew);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
    t->done = t->n;
}

void sp_trials_destroy(struct sp_trials *t)
{
    free(t->layout);
    free(t->err);
    *t = (struct sp_trials){0};
}
