#include "plan/search/trial.h"
#include "policies/registry.h"
#include "sp_grow.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_THREADS = 16 };

struct crew {
    const struct sp_search *want;
    struct sp_trials *trials;
    atomic_int next;
    atomic_bool stop;
};

void sp_trials_add(struct sp_trials *t, const struct sp_candidate *candidate)
{
    t->lost |= !sp_grow(&t->candidate, (size_t)t->n + 1, &t->room, sizeof *t->candidate);
    if ((size_t)t->n < t->room)
        t->candidate[t->n++] = *candidate;
}

/* Takes the index of the next candidate; n: none is left. */
static int take_next(struct crew *crew)
{
    int i = atomic_load(&crew->stop) ? crew->trials->n : atomic_fetch_add(&crew->next, 1);

    return i < crew->trials->n ? i : crew->trials->n;
}

static void try_one(struct crew *crew, int i)
{
    struct sp_candidate *c = &crew->trials->candidate[i];

    c->err = sp_trial(crew->want, crew->trials->book, c->beat_ms, &c->f);
}

static void *work(void *arg)
{
    struct crew *crew = arg;

    for (int i; (i = take_next(crew)) < crew->trials->n;)
        try_one(crew, i);
    return NULL;
}

/* The work of the caller's thread, which also asks whether to stop. */
static void lead(struct crew *crew, const struct sp_found *best, int n)
{
    const struct sp_search *want = crew->want;

    for (int i; (i = take_next(crew)) < crew->trials->n;) {
        try_one(crew, i);
        if (want->go_on && !want->go_on(want->go_on_arg, i, best, n))
            atomic_store(&crew->stop, true);
    }
}

/* True if a schedule is not built in: the guard around calls of such a schedule allows one at a
 * time. */
static bool has_guarded(void)
{
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++)
        if (sp_schedule_owner(def))
            return true;
    return false;
}

void sp_trials_run(const struct sp_search *want, struct sp_trials *t, const struct sp_found *best,
                   int n)
{
    struct crew crew = {.want = want, .trials = t, .next = t->done};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores < MOST_THREADS ? (int)cores : MOST_THREADS, threads = 0;
    pthread_t thread[MOST_THREADS];

    if (t->lost)
        return;
    for (int i = t->done; i < t->n; i++)
        t->candidate[i].err = -EINTR;
    atomic_init(&crew.stop, t->stopped);
    most = has_guarded() ? 1 : most < t->n - t->done ? most : t->n - t->done;
    while (threads < most - 1 && !pthread_create(&thread[threads], NULL, work, &crew))
        threads++;
    lead(&crew, best, n);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
    t->done = t->n;
    t->stopped = atomic_load(&crew.stop);
}

void sp_trials_destroy(struct sp_trials *t)
{
    free(t->candidate);
    *t = (struct sp_trials){0};
}
