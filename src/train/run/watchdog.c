#include "train/run/watchdog.h"
#include "sp_error.h"
#include "train/run/stall.h"
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
    int pauses;            /* begun and not ended */
    struct sp_stall stall; /* started by the thread */
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
    bool several = g->place.pipelines > 1;
    char text[SP_OP_TEXT], of[48] = "";

    if (several)
        snprintf(of, sizeof of, " of pipeline %d", g->place.pipeline);

    i = i < 0 ? first_waiting(g, st, g->turn) : i;
    if (i >= 0) {
        sp_error(ETIMEDOUT, "stage %d%s waits for %s, op %d of %d of the step", st->index, of,
                 sp_op_print(&prog->ops[i], g->cfg.plan->layout.slices > 1, text), i + 1, prog->n);
        return;
    }
    sp_error(ETIMEDOUT, "stage %d%s has run all ops of the step%s", st->index, of,
             several ? ", and waits for the gradients of other pipelines" : "");
}

/* The clock does not jump with the date; while this process is stopped it goes on, see stall.h. */
static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Waits for a tick or the end. */
static void wait_tick(struct sp_watchdog *dog, double tick_us)
{
    double end_us = now_us() + tick_us;
    struct timespec until = {.tv_sec = (time_t)(end_us / 1e6)};

    until.tv_nsec = (long)(1e3 * (end_us - 1e6 * (double)until.tv_sec));
    while (!dog->stopping && !pthread_cond_timedwait(&dog->stop, &dog->mutex, &until))
        continue;
}

static void give_up(const struct sp_watchdog *dog)
{
    sp_error(ETIMEDOUT, "rank %d: nothing moved for %g s, giving up", dog->graph->place.world.rank,
             dog->seconds);
    for (int k = 0; k < dog->graph->place.n_local; k++)
        report(dog->graph, &dog->graph->stages[k]);
    sp_transport_abort(1);
}

static void *watch(void *arg)
{
    struct sp_watchdog *dog = arg;
    const struct sp_window *window = dog->graph->window;

    pthread_mutex_lock(&dog->mutex);
    sp_stall_start(&dog->stall, 1e6 * dog->seconds, now_us(), sp_window_touches(window));
    while (!dog->stopping) {
        wait_tick(dog, dog->stall.tick_us);
        if (sp_stall_tick(&dog->stall, now_us(), sp_window_touches(window), dog->pauses > 0) &&
            !dog->stopping)
            give_up(dog);
    }
    pthread_mutex_unlock(&dog->mutex);
    return NULL;
}

struct sp_watchdog *sp_watchdog_start(const struct sp_graph *g, double seconds)
{
    struct sp_watchdog *dog = calloc(1, sizeof *dog);
    pthread_condattr_t attr;

    if (!dog)
        return NULL;
    dog->graph = g;
    dog->seconds = seconds;
    pthread_mutex_init(&dog->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->stop, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&dog->thread, NULL, watch, dog)) {
        pthread_cond_destroy(&dog->stop);
        pthread_mutex_destroy(&dog->mutex);
        free(dog);
        return NULL;
    }
    return dog;
}

static void add_pauses(struct sp_watchdog *dog, int n)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->mutex);
    dog->pauses += n;
    dog->stall.still_us = 0; /* what was still before or in the pause is forgotten */
    pthread_mutex_unlock(&dog->mutex);
}

void sp_watchdog_pause(struct sp_watchdog *dog)
{
    add_pauses(dog, 1);
}

void sp_watchdog_resume(struct sp_watchdog *dog)
{
    add_pauses(dog, -1);
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
