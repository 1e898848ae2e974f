/* What the runtime takes for a task: tasks with buffers as those of a layer, that do nothing. */
#include "train/calibrate/rates.h"
#include "sp_error.h"
#include <stdlib.h>

static void nothing(const struct sp_backend *k, void *buffers[], void *arg)
{
    (void)k, (void)buffers, (void)arg;
}

SP_BODY(nothing)

enum { BUFFERS = 4 };

static struct starpu_codelet nothing_cl = {
    SP_DEVICES(nothing),
    .nbuffers = BUFFERS,
    .modes = {STARPU_R, STARPU_R, STARPU_RW, STARPU_W},
    .name = "nothing",
};

/* A chain: each task reads what the one before wrote. */
static void submit(struct sp_bench *b, int worker, starpu_data_handle_t handles[BUFFERS], int i)
{
    struct sp_task_context ctx = sp_bench_context(b, worker);
    struct starpu_task *task =
        sp_task_new(&ctx, &nothing_cl, "nothing", NULL, sizeof(struct sp_task_args));

    task->handles[0] = handles[0];
    task->handles[1] = handles[1 + i % 2];
    task->handles[2] = handles[3];
    task->handles[3] = handles[2 - i % 2];
    sp_task_submit(&ctx, task, 0);
}

void sp_measure_task(struct sp_bench *b, struct sp_steady *s)
{
    enum { TASKS = 200, BYTES = 4096 };
    starpu_data_handle_t handles[STARPU_NMAXWORKERS][BUFFERS];
    char *memory = calloc((size_t)b->place.workers * BUFFERS, BYTES);
    const double start = sp_bench_now_s();

    SP_NEED(memory, "out of memory for tasks");
    for (int w = 0; w < b->place.workers; w++)
        for (int i = 0; i < BUFFERS; i++) {
            starpu_vector_data_register(&handles[w][i], STARPU_MAIN_RAM,
                                        (uintptr_t)(memory + (w * BUFFERS + i) * BYTES), BYTES, 1);
            starpu_data_set_name(handles[w][i], "nothing");
        }
    do {
        double begin = sp_bench_now_s();

        for (int i = 0; i < TASKS; i++)
            for (int w = 0; w < b->place.workers; w++)
                submit(b, w, handles[w], i);
        starpu_task_wait_for_all();
        sp_steady_add(s, (sp_bench_now_s() - begin) / TASKS);
    } while (s->n < SP_STEADY_MOST && sp_bench_now_s() - start < 2 * b->visit_s);
    for (int w = 0; w < b->place.workers; w++)
        for (int i = 0; i < BUFFERS; i++)
            starpu_data_unregister(handles[w][i]);
    free(memory);
}
