/*
 * Observes StarPU's CUDA driver through the fake devices: the number of tasks in flight, copies of
 * submatrices between devices, and that a codelet with a stream of its own is found out.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "fake_cuda.h"
#include "starpu_scene.h"

/* ---- tasks in flight ------------------------------------------------------------------------- */

static atomic_int launched, ended, most;

static void CUDART_CB take_time(void *arg)
{
    (void)arg;
    usleep(5000);
    ended++;
}

static void slow_cuda(void **buffers, void *arg)
{
    int flying = ++launched - ended;

    (void)buffers;
    (void)arg;
    if (most < flying)
        most = flying;
    MUST(!cudaLaunchHostFunc(starpu_cuda_get_local_stream(), take_time, NULL));
}

static struct starpu_codelet slow = {.cuda_funcs = {slow_cuda},
                                     .cuda_flags = {STARPU_CUDA_ASYNC},
                                     .nbuffers = 1,
                                     .modes = {STARPU_W},
                                     .name = "slow"};

/* Tasks on as many vectors: their number in flight is the exit status. */
static void flights(int vectors)
{
    enum { TASKS = 12 };
    starpu_data_handle_t y[TASKS];

    start();
    for (int i = 0; i < vectors; i++)
        starpu_vector_data_register(&y[i], -1, 0, 16, sizeof(float));
    for (int i = 0; i < TASKS; i++)
        MUST(!starpu_task_insert(&slow, STARPU_W, y[i % vectors], STARPU_EXECUTE_ON_WORKER,
                                 worker(0, 1), 0));
    starpu_task_wait_for_all();
    for (int i = 0; i < vectors; i++)
        starpu_data_unregister(y[i]);
    starpu_shutdown();
    _exit(most);
}

static void independent(void)
{
    flights(12);
}

static void dependent(void)
{
    flights(1);
}

/* ---- a codelet that forgets ------------------------------------------------------------------ */

static cudaStream_t own;

static void CUDART_CB set_to_one(void *arg)
{
    float *y = arg;

    sp_fake_kernel_name("set to one");
    sp_fake_kernel_access(y, 16 * sizeof *y, 1);
    for (int i = 0; i < 16; i++)
        y[i] = 1;
}

static void forgetful_cuda(void **buffers, void *arg)
{
    (void)arg;
    if (!own)
        MUST(!cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    MUST(!cudaLaunchHostFunc(own, set_to_one, (void *)STARPU_VECTOR_GET_PTR(buffers[0])));
    starpu_cuda_get_local_stream();
}

static struct starpu_codelet forgetful = {.cuda_funcs = {forgetful_cuda},
                                          .cuda_flags = {STARPU_CUDA_ASYNC},
                                          .nbuffers = 1,
                                          .modes = {STARPU_W},
                                          .name = "forgetful"};

/* Ends with 0 if the result arrived. */
static void forget(void)
{
    starpu_data_handle_t y;
    bool arrived;

    start();
    starpu_vector_data_register(&y, -1, 0, 16, sizeof(float));
    MUST(!starpu_task_insert(&forgetful, STARPU_W, y, 0));
    MUST(!starpu_data_acquire(y, STARPU_R));
    arrived = *(float *)starpu_vector_get_local_ptr(y) == 1;
    _exit(arrived ? 0 : 2);
}

/* ---- submatrices ----------------------------------------------------------------------------- */

enum { NX = 12, NY = 10, LD = 17 };

struct plus {
    float *at;
    unsigned nx, ny, ld;
};

/* y += 1 */
static void CUDART_CB increment(void *arg)
{
    struct plus *k = arg;

    sp_fake_kernel_name("increment");
    for (unsigned j = 0; j < k->ny; j++) {
        sp_fake_kernel_access(k->at + j * k->ld, k->nx * sizeof *k->at, 1);
        for (unsigned i = 0; i < k->nx; i++)
            k->at[j * k->ld + i] += 1;
    }
    free(k);
}

static struct plus *block(void **buffers)
{
    struct plus *k = malloc(sizeof *k);

    MUST(k);
    *k = (struct plus){(float *)STARPU_MATRIX_GET_PTR(buffers[0]), STARPU_MATRIX_GET_NX(buffers[0]),
                       STARPU_MATRIX_GET_NY(buffers[0]), STARPU_MATRIX_GET_LD(buffers[0])};
    return k;
}

static void increment_cuda(void **buffers, void *arg)
{
    (void)arg;
    MUST(!cudaLaunchHostFunc(starpu_cuda_get_local_stream(), increment, block(buffers)));
}

static void increment_cpu(void **buffers, void *arg)
{
    (void)arg;
    increment(block(buffers));
}

static struct starpu_codelet plus = {.cpu_funcs = {increment_cpu},
                                     .cuda_funcs = {increment_cuda},
                                     .cuda_flags = {STARPU_CUDA_ASYNC},
                                     .nbuffers = 1,
                                     .modes = {STARPU_RW},
                                     .name = "plus"};

/* A matrix with gaps between its rows, and its left and right half, over devices and CPU. */
static void matrices(void)
{
    struct starpu_data_filter halves = {.filter_func = starpu_matrix_filter_block, .nchildren = 2};
    starpu_data_handle_t m, half[2];
    float host[NY * LD];
    int devices = start(), rounds = 2 * (devices + 1);

    for (int i = 0; i < NY * LD; i++)
        host[i] = (float)i;
    starpu_matrix_data_register(&m, STARPU_MAIN_RAM, (uintptr_t)host, LD, NX, NY, sizeof(float));
    starpu_data_partition_plan(m, &halves, half);
    for (int i = 0; i < rounds; i++) {
        MUST(!starpu_task_insert(&plus, STARPU_RW, m, STARPU_EXECUTE_ON_WORKER, worker(i, devices),
                                 0));
        /* The halves begin where the whole is, and go on to the next device. */
        for (int h = 0; h < 2 * devices; h++)
            MUST(!starpu_task_insert(&plus, STARPU_RW, half[h % 2], STARPU_EXECUTE_ON_WORKER,
                                     worker(i + h / 2, devices), 0));
    }
    starpu_data_partition_clean(m, 2, half);
    starpu_data_unregister(m);
    for (int j = 0; j < NY; j++)
        for (int i = 0; i < LD; i++)
            MUST(host[j * LD + i] == (float)(j * LD + i + (i < NX ? (1 + devices) * rounds : 0)));
    starpu_shutdown();
}

/* ---- what comes of them ---------------------------------------------------------------------- */

#define SCENE(f)                                                                                   \
    {                                                                                              \
#f, f                                                                                      \
    }

static const struct scene scenes[] = {SCENE(independent), SCENE(dependent), SCENE(forget),
                                      SCENE(matrices)};

/* A task that is ready is launched behind those that run; one that depends on them is not. */
static void test_pipeline(void **state)
{
    char said[1000];

    (void)state;
    starpu_play("independent", 1, "STARPU_CUDA_PIPELINE=0", 1, said, sizeof said);
    starpu_play("independent", 1, "STARPU_CUDA_PIPELINE=1", 1, said, sizeof said);
    starpu_play("independent", 1, "", 2, said, sizeof said);
    starpu_play("independent", 1, "STARPU_CUDA_PIPELINE=4", 4, said, sizeof said);
    starpu_play("dependent", 1, "STARPU_CUDA_PIPELINE=4", 1, said, sizeof said);
}

static void test_forgetful(void **state)
{
    char said[1000];

    (void)state;
    starpu_play("forget", 1, "SP_FAKE_GPU_CHECK=1", 1, said, sizeof said);
    assert_non_null(strstr(said, "written by set to one"));
    assert_non_null(strstr(said, "read by copy device to host"));
}

static void test_matrices(void **state)
{
    char said[1000];

    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        starpu_play("matrices", devices, "SP_FAKE_GPU_CHECK=1", 0, said, sizeof said);
        starpu_play("matrices", devices, "SP_FAKE_GPU_JITTER_US=300 SP_FAKE_GPU_CHECK=1", 0, said,
                    sizeof said);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_forgetful),
        cmocka_unit_test(test_matrices),
    };

    scene_main(argc, argv, scenes, sizeof scenes / sizeof *scenes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
