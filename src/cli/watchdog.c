#include "cli/watchdog.h"
#include "sp_error.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct sp_watchdog {
    const struct sp_graph *graph;
    double seconds;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool stopping;
};

/* The first op of a stage's program that has not run in the step of a turn, -1 if all have. */
static int first_waiting(const struct sp_graph *g, const struct sp_stage *st, int turn)
{
    for (int i = 0; i < g->cfg.plan->programs[st->index].n; i++)
        if (st->meter[turn].ops[i].start_us <= 0)
            return i;
    return -1;
}

/* Of this step, or of the one before it, which may be under way as well. */
static void report(const struct sp_graph *g, const struct sp_stage *st)
{
    const struct sp_program *prog = &g->cfg.plan->programs[st->index];
    int i = g->step > 1 ? first_waiting(g, st, g->closing) : -1;
    char text[SP_OP_TEXT];

    i = i < 0 ? first_waiting(g, st, g->turn) : i;
    if (i >= 0) {
        sp_error(ETIMEDOUT, "stage %d waits for %s, op %d of %d of the step", st->index,
                 sp_op_print(&prog->ops[i], g->cfg.plan->layout.slices > 1, text), i + 1, prog->n);
        return;
    }
    sp_error(ETIMEDOUT, "stage %d has run all ops of the step", st->index);
}

static void *watch(void *arg)
{
    struct sp_watchdog *dog = arg;
    unsigned long seen = sp_window_touches(dog->graph->window);
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_lock(&dog->mutex);
    while (!dog->stopping) {
        unsigned long now;

        until.tv_sec += (time_t)dog->seconds + 1;
        while (!dog->stopping && !pthread_cond_timedwait(&dog->stop, &dog->mutex, &until))
            continue;
        now = sp_window_touches(dog->graph->window);
        if (dog->stopping || now != seen) {
            seen = now;
            continue;
        }
        sp_error(ETIMEDOUT, "rank %d: nothing moved for %.0f s, giving up",
                 dog->graph->place.world.rank, dog->seconds);
        for (int k = 0; k < dog->graph->place.n_local; k++)
            report(dog->graph, &dog->graph->stages[k]);
        sp_transport_abort(1);
    }
    pthread_mutex_unlock(&dog->mutex);
    return NULL;
}

struct sp_watchdog *sp_watchdog_start(const struct sp_graph *g, double seconds)
{
    struct sp_watchdog *dog = calloc(1, sizeof *dog);

    if (!dog)
        return NULL;
    dog->graph = g;
    dog->seconds = seconds;
    pthread_mutex_init(&dog->mutex, NULL);
    pthread_cond_init(&dog->stop, NULL);
    if (pthread_create(&dog->thread, NULL, watch, dog)) {
        free(dog);
        return NULL;
    }
    return dog;
}

void sp_watchdog_stop(struct sp_watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->mutex);
    dog->stopping = true;
    pthread_cond_signal(&dog->stop);
    pthread_mutex_unlock(&dog->mutex);
    pthread_join(dog->thread, NULL);
    pthread_mutex_destroy(&dog->mutex);
    pthread_cond_destroy(&dog->stop);
    free(dog);
}
