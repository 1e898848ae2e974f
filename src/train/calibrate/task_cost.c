/* Measures the time that the runtime needs for a task, with tasks that have a layer's buffers
 * and do nothing. */
#include "train/calibrate/rates.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include <stdlib.h>

static void nothing(const struct sp_backend *k, void *const *at, const size_t *bytes, void *arg)
{
    (void)k, (void)at, (void)bytes, (void)arg;
}

enum { BUFFERS = 4 };

static struct sp_codelet nothing_cl = {.name = "nothing", .run = nothing, .timed = true};

/* Tasks form a chain: each reads what the one before it wrote. */
static void submit(struct sp_bench *b, int worker, struct sp_tensor *const *t, int i)
{
    struct sp_task_context ctx = sp_bench_context(b, worker);
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
                submit(b, w, t + w * BUFFERS, i);
        sp_starpu_sink()->ops->wait();
        sp_steady_add(s, (sp_bench_now_s() - begin) / TASKS);
    } while (s->n < SP_STEADY_MOST && sp_bench_now_s() - start < 2 * b->turn_s);
    for (int i = 0; i < n; i++)
        sp_tensor_unmake_at(t[i]);
    free(t);
    free(memory);
}
