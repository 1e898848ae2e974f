#include "train/run/watchdog.h"
#include "sp_activity.h"
#include "sp_error.h"
#include "sinks/starpu/sink.h"
#include "transport/beats.h"
#include "transport/last_seconds.h"
#include "transport/launcher.h"
#include "transport/transport.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

enum { NESTED = 8, TEXT = 128 };
static const double TICK_US = 2e5;
static const double FOREVER_US = 1e15;
static const double GRACE_S = 3; /* if nothing moves so long after an end was asked for, it ends */
static const double TASK_S = 60; /* the same while a worker has a task */
static const double SAVE_S =
    30; /* the same while a checkpoint is written: as long as batch systems wait */

static const struct {
    double least_s;
    bool ends;     /* the process ends at once when asked: nothing is lost */
    bool tasks;    /* workers may have tasks */
    bool stays;    /* nothing needs to move */
    bool computes; /* the process computes by itself: time on a core is a move */
} PHASES[] = {
    [SP_PHASE_LAUNCH] = {.least_s = 6, .ends = true},
    [SP_PHASE_PREPARE] = {.least_s = 60, .ends = true, .computes = true},
    [SP_PHASE_SETUP] = {.least_s = 60, .ends = true},
    [SP_PHASE_SAVE] = {.least_s = 60},
    [SP_PHASE_STEP] = {.tasks = true},
    [SP_PHASE_EVALUATE] = {.tasks = true},
    [SP_PHASE_SAMPLE] = {.ends = true, .tasks = true},
    [SP_PHASE_WORDS] = {.ends = true, .stays = true},
};

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool runs, stopping;
    bool ending; /* the run ends, as it was asked to */
    double seconds;
    int rank; /* -1: not known */
    const struct sp_graph *graph;
    bool program; /* the command owns the process */
    struct sp_parent launcher;

    int depth; /* of phases */
    enum sp_phase phase[NESTED];
    char what[NESTED][TEXT];

    /* only the thread uses these */
    struct sp_stall stall, grace;
    unsigned long heard, sent; /* beats of others that moved; touches at this process's last beat */
    bool told;                 /* others know that an end is asked for */
    bool asked_there;          /* another process is asked to end */
    double beat_us;
    double looked_us, cpu_us; /* at the last look: the time, and the CPU time of the process */
} dog = {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = -1};

/* ---- its lines ------------------------------------------------------------------------------- */

/* The first op of a stage's program that has not run in the step of a turn; -1: all have. */
static int first_waiting(const struct sp_graph *g, const struct sp_stage *st, int turn)
{
    for (int i = 0; i < g->cfg.plan->programs[st->index].n; i++)
        if (st->meter[turn].ops[i].start_us <= 0)
            return i;
    return -1;
}

/* Reports the op that a stage waits for, in this step or in the one before it, which may be
 * under way as well. */
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

/* Writes " while saving step 4, waiting for rank 1"; the ops of a step are printed separately. */
static void describe(char *out, size_t n)
{
    int rank = sp_activity_awaited(), used = 0;

    out[0] = '\0';
    if (dog.depth)
        used = snprintf(out, n, " while %s", dog.what[dog.depth - 1]);
    if (rank >= 0)
        snprintf(out + used, n - (size_t)used, ", waiting for rank %d", rank);
    else if (rank == SP_ANY_RANK)
        snprintf(out + used, n - (size_t)used, ", waiting for other processes");
}

/* Makes what the last line of the process begins and ends with, and lets it be printed even if others are held. */
static void begin_last_line(char rank[32], char at[TEXT + 64])
{
    rank[0] = '\0';
    if (dog.rank >= 0)
        snprintf(rank, 32, "rank %d: ", dog.rank);
    describe(at, TEXT + 64);
    sp_error_hold(0);
}

static void give_up(double seconds)
{
    char rank[32], at[TEXT + 64];

    sp_last_seconds(1); /* also if nobody reads the lines */
    begin_last_line(rank, at);
    sp_error(ETIMEDOUT, "%snothing moved for %g s%s, giving up", rank, seconds, at);
    if (dog.graph && dog.depth && dog.phase[dog.depth - 1] == SP_PHASE_STEP)
        for (int k = 0; k < dog.graph->place.n_local; k++)
            report(dog.graph, &dog.graph->stages[k]);
    sp_transport_abort(1);
}

/* If every process was asked, one line is enough, and rank 0 is the first to print it. A
 * launcher that ends its processes prints the reason itself: another process has failed. */
static void end_as_asked(const char *by, double still_s)
{
    char rank[32], at[TEXT + 64];
    bool launcher = dog.launcher.pid && sp_activity_end_asker() == dog.launcher.pid;

    sp_last_seconds(1);
    if (launcher && (still_s <= 0 || dog.rank > 0))
        sp_transport_abort(1);
    if (dog.rank > 0)
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    begin_last_line(rank, at);
    if (still_s > 0)
        sp_error(EINTR, "%sended by %s%s: nothing moved for %g s", rank, by, at, still_s);
    else
        sp_error(EINTR, "%sended by %s%s", rank, by, at);
    sp_transport_abort(1);
}

/* ---- watching ---------------------------------------------------------------------------- */

static double clock_us(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* A clock that does not jump with the date. While this process is stopped it goes on, see
 * stall.c. */
static double now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

/* Waits for a tick or the end. */
static void wait_tick(double tick_us)
{
    double end_us = now_us() + tick_us;
    struct timespec until = {.tv_sec = (time_t)(end_us / 1e6)};

    until.tv_nsec = (long)(1e3 * (end_us - 1e6 * (double)until.tv_sec));
    while (!dog.stopping && !pthread_cond_timedwait(&dog.stop, &dog.mutex, &until))
        continue;
}

/* The least timeout of the phase, in seconds. */
static double least_s(void)
{
    if (!dog.depth || sp_activity_awaited() != SP_NO_RANK)
        return dog.depth && dog.phase[dog.depth - 1] == SP_PHASE_LAUNCH
                   ? PHASES[SP_PHASE_LAUNCH].least_s
                   : 0;
    return PHASES[dog.phase[dog.depth - 1]].least_s;
}

/* True if a worker has a task: the task's end will be a move. */
static bool computes(void)
{
    return dog.graph && dog.depth && PHASES[dog.phase[dog.depth - 1]].tasks &&
           sp_workers_waiting() < dog.graph->place.workers;
}

/* Tells the others that this process moves, and hears if they do. */
static void beat(double now)
{
    unsigned long touches = sp_activity_touches();
    bool asks = sp_activity_end_asked() != NULL, still = dog.stall.still_us >= dog.stall.timeout_us;
    bool moves = touches != dog.sent || (!still && (computes() || least_s() > 0));
    double every = asks || dog.asked_there ? GRACE_S : dog.seconds;
    int say = 0, heard;

    if (now - dog.beat_us >= 1e6 * fmin(every > 0 ? every : 60, 60) / 5)
        say = (moves ? SP_BEAT_MOVES : 0) | (asks && !dog.told ? SP_BEAT_ASKED : 0);
    if ((!say && dog.stall.still_us <= 0) || !sp_transport_beat(say, &heard))
        return;
    if (say) {
        dog.beat_us = now;
        dog.sent = touches;
        dog.told = dog.told || asks;
    }
    if (heard & SP_BEAT_MOVES)
        dog.heard++;
    if (heard & SP_BEAT_ASKED)
        dog.asked_there = true;
}

/* A search or a simulation counts no moves, so the CPU time that it gets counts as one. */
static void count_computing(double now)
{
    double cpu = clock_us(CLOCK_PROCESS_CPUTIME_ID);

    if (dog.depth && PHASES[dog.phase[dog.depth - 1]].computes &&
        sp_activity_awaited() == SP_NO_RANK && cpu - dog.cpu_us > (now - dog.looked_us) / 10)
        sp_activity_touch();
    dog.cpu_us = cpu;
    dog.looked_us = now;
}

static void look(void)
{
    const char *by = sp_activity_end_asked();
    enum sp_phase phase = dog.depth ? dog.phase[dog.depth - 1] : SP_PHASE_STEP;
    double now = now_us(), seconds = fmax(dog.seconds, least_s()), grace;
    unsigned long moves;

    if (!by && sp_parent_gone(&dog.launcher))
        sp_activity_ask_end(by = "the end of its launcher", 0);
    count_computing(now);
    if (dog.depth)
        beat(now);
    moves = sp_activity_touches() + dog.heard;
    dog.stall.timeout_us = dog.seconds > 0 ? 1e6 * seconds : FOREVER_US;
    grace = computes() ? TASK_S : fmax(GRACE_S, fmin(SAVE_S, least_s()));
    dog.grace.timeout_us = 1e6 * grace;
    if (by && !dog.ending && dog.depth && PHASES[phase].ends)
        end_as_asked(by, 0);
    if (sp_stall_tick(&dog.stall, now, moves, !dog.depth || PHASES[phase].stays))
        give_up(seconds);
    if (sp_stall_tick(&dog.grace, now, moves, !by || (!dog.depth && !dog.program)))
        end_as_asked(by, grace);
}

static void *watch(void *arg)
{
    unsigned long moves = sp_activity_touches();

    (void)arg;
    sp_error_alone();
    pthread_mutex_lock(&dog.mutex);
    sp_stall_start(&dog.stall, 1e6 * dog.seconds, now_us(), moves);
    sp_stall_start(&dog.grace, 1e6 * GRACE_S, now_us(), moves);
    while (!dog.stopping) {
        dog.stall.tick_us = dog.grace.tick_us =
            dog.seconds > 0 ? fmin(TICK_US, fmax(1e5 * dog.seconds, 1e4)) : TICK_US;
        wait_tick(dog.stall.tick_us);
        if (!dog.stopping)
            look();
    }
    pthread_mutex_unlock(&dog.mutex);
    return NULL;
}

/* ---- from outside ------------------------------------------------------------------------ */

void sp_watchdog_start(double seconds)
{
    pthread_condattr_t attr;

    pthread_mutex_lock(&dog.mutex);
    dog.seconds = seconds;
    if (!dog.runs) {
        dog.stopping = false;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&dog.stop, &attr);
        pthread_condattr_destroy(&attr);
        dog.runs = !pthread_create(&dog.thread, NULL, watch, NULL);
        if (!dog.runs)
            pthread_cond_destroy(&dog.stop);
    }
    pthread_mutex_unlock(&dog.mutex);
}

void sp_watchdog_own_process(void)
{
    pthread_mutex_lock(&dog.mutex);
    dog.program = true;
    sp_parent_find(&dog.launcher);
    pthread_mutex_unlock(&dog.mutex);
}

bool sp_watchdog_runs(void)
{
    return dog.runs;
}

void sp_watchdog_stop(void)
{
    if (!dog.runs)
        return;
    pthread_mutex_lock(&dog.mutex);
    dog.stopping = true;
    pthread_cond_signal(&dog.stop);
    pthread_mutex_unlock(&dog.mutex);
    pthread_join(dog.thread, NULL);
    pthread_cond_destroy(&dog.stop);
    dog.runs = false;
    dog.depth = 0;
}

void sp_watchdog_know_rank(int rank)
{
    pthread_mutex_lock(&dog.mutex);
    dog.rank = rank;
    pthread_mutex_unlock(&dog.mutex);
}

void sp_watchdog_know_graph(const struct sp_graph *g)
{
    pthread_mutex_lock(&dog.mutex);
    dog.graph = g;
    pthread_mutex_unlock(&dog.mutex);
}

void sp_watchdog_end_begun(void)
{
    pthread_mutex_lock(&dog.mutex);
    dog.ending = true;
    pthread_mutex_unlock(&dog.mutex);
}

void sp_watchdog_begin(enum sp_phase phase, const char *what, ...)
{
    va_list ap;

    pthread_mutex_lock(&dog.mutex);
    SP_NEED(dog.depth < NESTED, "internal: phases in phases");
    dog.phase[dog.depth] = phase;
    va_start(ap, what);
    vsnprintf(dog.what[dog.depth], TEXT, what, ap);
    va_end(ap);
    dog.depth++;
    pthread_mutex_unlock(&dog.mutex);
    sp_activity_touch();
}

void sp_watchdog_end(void)
{
    sp_activity_touch();
    pthread_mutex_lock(&dog.mutex); /* an MPI call for a beat also runs under it */
    dog.depth--;
    pthread_mutex_unlock(&dog.mutex);
}
