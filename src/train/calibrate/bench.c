#include "train/calibrate/rates.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

enum { NOISE_BYTES = 1 << 20 };

/* A sample takes at least this long and may be of several calls, because reading a clock and
 * waiting for a GPU take time too. A longer one would be disturbed more often: a program that
 * takes a core keeps it for milliseconds. */
static const double sample_s = 0.5e-3;

double sp_bench_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the second number of schedstat: nanoseconds on the queue of a processor. */
double sp_bench_waited_s(void)
{
    unsigned long long ran, waited = 0;
    FILE *f = fopen("/proc/thread-self/schedstat", "r");

    if (f && fscanf(f, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    if (f)
        fclose(f);
    return 1e-9 * (double)waited;
}

/* ---- the task ----------------------------------------------------------------------------- */

struct timing_args {
    struct sp_task_args task;
    const struct sp_timed_call *call;
    double turn_s;
    int places;
    struct sp_steady *samples;
};

/* Fills with values of 1/4 to 1/2 of either sign, in f32 as in bf16: nothing is denormal, and
 * nothing soon becomes infinite. The whole arena has them whenever nothing is timed in it. */
static void fill(const struct sp_backend *k, const char *noise, char *arrays, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += NOISE_BYTES)
        k->copy(k, bytes - at < NOISE_BYTES ? bytes - at : NOISE_BYTES, noise, arrays + at);
}

struct turns {
    char *arrays;
    size_t bytes; /* of a place */
    int places, first;
    int taken; /* calls so far; they take the places in turn, from `first` on */
};

static double calls_s(const struct sp_backend *k, const struct sp_timed_call *call,
                      struct turns *turns, int n)
{
    double start = sp_bench_now_s();

    for (int i = 0; i < n; i++) {
        int place = (turns->first + turns->taken++) % turns->places;

        sp_timed_run(k, call, turns->arrays + (size_t)place * turns->bytes);
    }
    sp_cuda_wait(k);
    return sp_bench_now_s() - start;
}

/* Refills the places that calls wrote to. */
static void restore(const struct sp_backend *k, const char *noise, const struct turns *turns)
{
    int n = turns->taken < turns->places ? turns->taken : turns->places;
    int end = turns->first + n < turns->places ? turns->first + n : turns->places;

    fill(k, noise, turns->arrays + (size_t)turns->first * turns->bytes,
         turns->bytes * (size_t)(end - turns->first));
    fill(k, noise, turns->arrays, turns->bytes * (size_t)(turns->first + n - end));
    sp_cuda_wait(k);
}

/* The mean time that the threads of a worker's team have waited for cores. */
static double team_waited_s(const struct sp_backend *k)
{
    double sum = 0;
    int threads = 0;

    if (k->cuda)
        return 0;
#pragma omp parallel reduction(+ : sum, threads)
    {
        sum += sp_bench_waited_s();
        threads++;
    }
    return sum / threads;
}

static void sample(const struct sp_backend *k, const struct timing_args *a, struct turns *turns)
{
    struct sp_steady *s = a->samples;
    int calls = s->n + s->disturbed > 0 ? (int)fmin(1e6, sample_s / s->fastest) : 1;
    double waited = team_waited_s(k), took;

    calls = calls > 1 ? calls : 1;
    took = calls_s(k, a->call, turns, calls);
    sp_steady_take(s, took, team_waited_s(k) - waited, calls);
}

/* A disturbed turn goes on until it has UNDISTURBED samples, for at most PATIENCE times as
 * long. */
enum { UNDISTURBED = 2, PATIENCE = 10 };

static void timing(const struct sp_backend *k, void *const *at, const size_t *bytes_at, void *arg)
{
    const struct timing_args *a = arg;
    const char *noise = at[0];
    struct turns turns = {.arrays = at[1], .places = a->places};
    struct sp_steady *s = a->samples;
    double start, spent;
    int before = s->n;

    (void)bytes_at;
    turns.bytes = sp_timed_bytes(a->call, NULL);
    turns.first = (int)((unsigned)s->n * 7919u % (unsigned)turns.places);
    if (s->n + s->disturbed == 0) {
        calls_s(k, a->call, &turns, 1); /* libraries tune when they first meet a shape */
        sp_steady_disturbed(s, calls_s(k, a->call, &turns, 1));
    }
    start = sp_bench_now_s();
    do {
        sample(k, a, &turns);
        spent = sp_bench_now_s() - start;
    } while (s->n < SP_STEADY_MOST &&
             (spent < a->turn_s ||
              (s->n - before < UNDISTURBED && s->disturbed && spent < PATIENCE * a->turn_s)));
    restore(k, noise, &turns);
}

static struct sp_codelet timing_cl = {.name = "timing", .run = timing, .timed = true};

static void fill_arena(const struct sp_backend *k, void *const *at, const size_t *bytes, void *arg)
{
    (void)arg;
    fill(k, at[0], at[1], bytes[1]);
}

static struct sp_codelet fill_arena_cl = {.name = "fill arena", .run = fill_arena, .timed = true};

/* ---- figures ------------------------------------------------------------------------------ */

/* A task context on a worker. */
static struct sp_task_context context_on(struct sp_bench *b, int worker)
{
    return (struct sp_task_context){.sink = sp_starpu_sink(),
                                    .worker = worker,
                                    .order = &b->order[worker],
                                    .meter = &b->meter,
                                    .window = b->window,
                                    .op_index = -1,
                                    .stage = worker,
                                    .pass = 'C',
                                    .slice = -1};
}

static int places_of(const struct sp_figure *f)
{
    int places = (int)(f->spread / sp_timed_bytes(&f->call, NULL));

    return places > 0 ? places : 1;
}

static void submit(struct sp_bench *b, int worker, const struct sp_figure *f)
{
    struct sp_task_context ctx = context_on(b, worker);
    struct sp_task *task =
        sp_task_new(&ctx, &timing_cl, "timing", NULL, sizeof(struct timing_args));
    struct timing_args *a = task->args;

    a->call = &f->call;
    a->turn_s = b->turn_s;
    a->places = places_of(f);
    a->samples = &f->worker[worker];
    a->task.dtype = f->call.dtype;
    sp_task_use(task, b->noise_tensor, SP_READ);
    sp_task_use(task, b->arena[worker], SP_READ_WRITE);
    sp_task_submit(&ctx, task, sp_timed_work(&f->call));
}

static void leave_arena(struct sp_bench *b)
{
    for (int w = 0; b->arena_bytes && w < b->place.workers; w++)
        sp_tensor_unmake(b->arena[w]);
    b->arena_bytes = 0;
}

/* The arena is kept from figure to figure: using fresh memory costs more than what is measured
 * in it. */
static void enlarge_arena(struct sp_bench *b, size_t bytes)
{
    if (bytes <= b->arena_bytes)
        return;
    leave_arena(b);
    for (int w = 0; w < b->place.workers; w++) {
        struct sp_task_context ctx = context_on(b, w);
        struct sp_task *task =
            sp_task_new(&ctx, &fill_arena_cl, "fill arena", NULL, sizeof(struct sp_task_args));

        b->arena[w] = sp_tensor_make(ctx.sink, (bytes + 3) / 4, 4, "arrays");
        sp_task_use(task, b->noise_tensor, SP_READ);
        sp_task_use(task, b->arena[w], SP_WRITE);
        sp_task_submit(&ctx, task, 0);
    }
    b->arena_bytes = bytes;
}

void sp_bench_turn(struct sp_bench *b, struct sp_figure *f)
{
    enlarge_arena(b, sp_timed_bytes(&f->call, NULL) * (size_t)places_of(f));
    for (int w = 0; w < b->place.workers; w++)
        submit(b, w, f);
    sp_starpu_sink()->ops->wait();
}

void sp_bench_show(const struct sp_bench *b, const char *format, ...)
{
    char line[80];
    va_list ap;

    if (!b->shows)
        return;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    fprintf(stderr, "\r%-78s\r%s", "", line);
    fflush(stderr);
}

/* ---- the cost of a task: tasks that have a layer's buffers and do nothing ---------------------- */

static void nothing(const struct sp_backend *k, void *const *at, const size_t *bytes, void *arg)
{
    (void)k, (void)at, (void)bytes, (void)arg;
}

enum { BUFFERS = 4 }; /* as a layer */

static struct sp_codelet nothing_cl = {.name = "nothing", .run = nothing, .timed = true};

/* Tasks form a chain: each reads what the one before it wrote. */
static void submit_nothing(struct sp_bench *b, int worker, struct sp_tensor *const *t, int i)
{
    struct sp_task_context ctx = context_on(b, worker);
    struct sp_task *task =
        sp_task_new(&ctx, &nothing_cl, "nothing", NULL, sizeof(struct sp_task_args));

    sp_task_use(task, t[0], SP_READ);
    sp_task_use(task, t[1 + i % 2], SP_READ);
    sp_task_use(task, t[3], SP_READ_WRITE);
    sp_task_use(task, t[2 - i % 2], SP_WRITE);
    sp_task_submit(&ctx, task, 0);
}

void sp_measure_task(struct sp_bench *b, struct sp_steady *s)
{
    enum { TASKS = 200, BYTES = 4096 };
    const int n = b->place.workers * BUFFERS;
    struct sp_tensor **t = calloc((size_t)n, sizeof(struct sp_tensor *));
    char *memory = calloc((size_t)n, BYTES);
    const double start = sp_bench_now_s();

    SP_NEED(memory && t, "out of memory for tasks");
    for (int i = 0; i < n; i++)
        t[i] = sp_tensor_make_at(sp_starpu_sink(), memory + i * BYTES, BYTES, 1, "nothing");
    do {
        double begin = sp_bench_now_s();

        for (int i = 0; i < TASKS; i++)
            for (int w = 0; w < b->place.workers; w++)
                submit_nothing(b, w, t + w * BUFFERS, i);
        sp_starpu_sink()->ops->wait();
        sp_steady_add(s, (sp_bench_now_s() - begin) / TASKS);
    } while (s->n < SP_STEADY_MOST && sp_bench_now_s() - start < 2 * b->turn_s);
    for (int i = 0; i < n; i++)
        sp_tensor_unmake_at(t[i]);
    free(t);
    free(memory);
}

/* ---- life --------------------------------------------------------------------------------- */

int sp_bench_create(struct sp_bench *b)
{
    uint16_t *noise = malloc(NOISE_BYTES);
    uint32_t x = 1;

    b->window = sp_window_create(1);
    b->order = calloc((size_t)b->place.workers, sizeof *b->order);
    b->arena = calloc((size_t)b->place.workers, sizeof(struct sp_tensor *));
    b->noise = noise;
    if (!noise || !b->window || !b->order || !b->arena) {
        sp_window_destroy(b->window);
        free(b->order);
        free(b->arena);
        free(noise);
        return sp_error(ENOMEM, "calibrate: no memory");
    }
    for (int i = 0; i < NOISE_BYTES / 2; i++) {
        x = x * 1664525u + 1013904223u;
        noise[i] = (uint16_t)((x >> 31) << 15 | 0x3e80 | (x >> 24 & 0x7f));
    }
    sp_workers_reset();
    b->noise_tensor = sp_tensor_make_at(sp_starpu_sink(), noise, NOISE_BYTES / 4, 4, "noise");
    return 0;
}

void sp_bench_destroy(struct sp_bench *b)
{
    leave_arena(b);
    sp_tensor_unmake_at(b->noise_tensor);
    sp_window_destroy(b->window);
    free(b->order);
    free(b->arena);
    free(b->noise);
    sp_workers_reset();
}
