#include "train/calibrate/bench.h"
#include "codelets/task/cuda.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "train/calibrate/steady.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

enum { NOISE_BYTES = 1 << 20 };

/* Of the calls of a sample, at a time: of one call that was interrupted, little is known. */
enum { GROWTH = 4 };

/* Shorter samples are of several calls: clocks, and waiting for a GPU, take some time themselves; and what takes
 * a core away by turns, a quota or another program, does so for milliseconds. */
static const double sample_cpu_s = 8e-3, sample_gpu_s = 1e-3;

double sp_bench_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the task ----------------------------------------------------------------------------- */

struct timing_args {
    struct sp_task_args task;
    const struct sp_timed_call *call;
    double figure_s;
    int places;
    double *seconds;
    bool *steady;
};

/* Values of 1/4 to 1/2 of either sign, in f32 as in bf16: nothing is denormal, or soon infinite. */
static void fill(const struct sp_backend *k, const char *noise, char *arrays, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += NOISE_BYTES)
        k->copy(k, bytes - at < NOISE_BYTES ? bytes - at : NOISE_BYTES, noise, arrays + at);
}

struct turns {
    char *arrays;
    size_t bytes; /* of a place */
    int places, next;
};

static double calls_s(const struct sp_backend *k, const struct sp_timed_call *call,
                      struct turns *turns, int n)
{
    double start = sp_bench_now_s();

    for (int i = 0; i < n; i++) {
        sp_timed_run(k, call, turns->arrays + (size_t)turns->next * turns->bytes);
        turns->next = (turns->next + 1) % turns->places;
    }
    sp_cuda_wait(k);
    return sp_bench_now_s() - start;
}

static void timing(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct timing_args *a = arg;
    const double sample_s = k->cuda ? sample_gpu_s : sample_cpu_s, start = sp_bench_now_s();
    size_t bytes[SP_TIMED_ARRAYS];
    struct turns turns = {.arrays = (char *)STARPU_VECTOR_GET_PTR(buffers[1]), .places = a->places};
    struct sp_steady s = {0};
    double took;
    int calls = 1;

    turns.bytes = sp_timed_bytes(a->call, bytes);
    fill(k, (const char *)STARPU_VECTOR_GET_PTR(buffers[0]), turns.arrays,
         turns.bytes * (size_t)turns.places);
    calls_s(k, a->call, &turns, 1); /* libraries choose what they do when they meet a shape */
    while ((took = calls_s(k, a->call, &turns, calls)) < sample_s)
        calls = (int)(calls * fmin(sample_s / (took + 1e-9), GROWTH)) + 1;
    sp_steady_add(&s, took / calls);
    do
        sp_steady_add(&s, calls_s(k, a->call, &turns, calls) / calls);
    while (s.n < SP_STEADY_MOST &&
           (s.n < SP_STEADY_LEAST ||
            (!sp_steady_reached(&s) && sp_bench_now_s() - start < a->figure_s)));
    *a->seconds = sp_steady_median(&s);
    *a->steady = sp_steady_reached(&s);
}

SP_BODY(timing)

static struct starpu_codelet timing_cl = {
    SP_DEVICES(timing),
    .nbuffers = 2,
    .modes = {STARPU_R, STARPU_W},
    .name = "timing",
};

/* ---- figures ------------------------------------------------------------------------------ */

struct sp_task_context sp_bench_context(struct sp_bench *b, int worker)
{
    return (struct sp_task_context){.worker = worker,
                                    .order = &b->order[worker],
                                    .meter = &b->meter,
                                    .window = b->window,
                                    .op_index = -1,
                                    .stage = worker,
                                    .pass = 'C',
                                    .slice = -1};
}

static starpu_data_handle_t submit(struct sp_bench *b, int worker, const struct timing_args *how)
{
    struct sp_task_context ctx = sp_bench_context(b, worker);
    struct starpu_task *task = sp_task_new(&ctx, &timing_cl, "timing", NULL, sizeof *how);
    struct timing_args *a = task->cl_arg;
    size_t bytes[SP_TIMED_ARRAYS], words;
    starpu_data_handle_t arrays;

    words = sp_timed_bytes(how->call, bytes) * (size_t)how->places / 4;
    starpu_vector_data_register(&arrays, -1, 0, (uint32_t)words, 4);
    starpu_data_set_name(arrays, "arrays");
    a->call = how->call;
    a->figure_s = how->figure_s;
    a->places = how->places;
    a->seconds = how->seconds;
    a->steady = how->steady;
    a->task.dtype = how->call->dtype;
    task->handles[0] = b->noise_handle;
    task->handles[1] = arrays;
    sp_task_submit(&ctx, task, sp_timed_work(how->call));
    return arrays;
}

double sp_bench_time(struct sp_bench *b, const struct sp_timed_call *call, size_t spread)
{
    starpu_data_handle_t arrays[STARPU_NMAXWORKERS];
    double seconds[STARPU_NMAXWORKERS], sum = 0;
    size_t bytes[SP_TIMED_ARRAYS];
    bool steady[STARPU_NMAXWORKERS], all = true;
    int places = (int)(spread / sp_timed_bytes(call, bytes));

    for (int w = 0; w < b->place.workers; w++) {
        const struct timing_args how = {.call = call,
                                        .figure_s = b->figure_s,
                                        .places = places > 0 ? places : 1,
                                        .seconds = &seconds[w],
                                        .steady = &steady[w]};

        arrays[w] = submit(b, w, &how);
    }
    starpu_task_wait_for_all();
    for (int w = 0; w < b->place.workers; w++) {
        starpu_data_unregister_no_coherency(arrays[w]);
        sum += seconds[w];
        all = all && steady[w];
    }
    sp_bench_count(b, all);
    return sum / b->place.workers;
}

void sp_bench_count(struct sp_bench *b, bool steady)
{
    b->figures++;
    b->unsteady += !steady;
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

/* ---- life --------------------------------------------------------------------------------- */

int sp_bench_create(struct sp_bench *b)
{
    uint16_t *noise = malloc(NOISE_BYTES);
    uint32_t x = 1;

    b->window = sp_window_create(1);
    b->noise = noise;
    if (!noise || !b->window) {
        free(noise);
        return sp_error(ENOMEM, "calibrate: no memory");
    }
    for (int i = 0; i < NOISE_BYTES / 2; i++) {
        x = x * 1664525u + 1013904223u;
        noise[i] = (uint16_t)((x >> 31) << 15 | 0x3e80 | (x >> 24 & 0x7f));
    }
    sp_order_reset();
    starpu_vector_data_register(&b->noise_handle, STARPU_MAIN_RAM, (uintptr_t)noise,
                                NOISE_BYTES / 4, 4);
    starpu_data_set_name(b->noise_handle, "noise");
    return 0;
}

void sp_bench_destroy(struct sp_bench *b)
{
    starpu_data_unregister(b->noise_handle);
    sp_window_destroy(b->window);
    free(b->noise);
    sp_order_reset();
}
