/*
 * StarPU's CUDA driver on fake devices: chains of asynchronous tasks over devices and CPU, more
 * data than a device has memory, many small tasks, two tasks in flight. All of it plainly, with
 * jitter, and under the checker.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <time.h>
#include "fake_cuda.h"
#include "starpu_scene.h"

enum { MIB = 1 << 20 };

/* ---- y = a y + x, on vectors of n ------------------------------------------------------------ */

struct axpy {
    float *y, a;
    const float *x; /* NULL: 1 everywhere */
    unsigned n;
};

static void compute(const struct axpy *k)
{
    sp_fake_kernel_access(k->y, k->n * sizeof *k->y, 1);
    if (k->x)
        sp_fake_kernel_access(k->x, k->n * sizeof *k->x, 0);
    for (unsigned i = 0; i < k->n; i++)
        k->y[i] = k->a * k->y[i] + (k->x ? k->x[i] : 1);
}

static struct axpy arguments(void **buffers, const float *a, bool x)
{
    return (struct axpy){(float *)STARPU_VECTOR_GET_PTR(buffers[0]), *a,
                         x ? (const float *)STARPU_VECTOR_GET_PTR(buffers[1]) : NULL,
                         STARPU_VECTOR_GET_NX(buffers[0])};
}

static void CUDART_CB kernel(void *arg)
{
    sp_fake_kernel_name("axpy");
    compute(arg);
    free(arg);
}

static void launch(struct axpy k)
{
    struct axpy *kept = malloc(sizeof *kept);

    MUST(kept);
    *kept = k;
    MUST(!cudaLaunchHostFunc(starpu_cuda_get_local_stream(), kernel, kept));
}

static void one_cpu(void **buffers, void *a)
{
    struct axpy k = arguments(buffers, a, false);

    compute(&k);
}

static void one_cuda(void **buffers, void *a)
{
    launch(arguments(buffers, a, false));
}

static void two_cpu(void **buffers, void *a)
{
    struct axpy k = arguments(buffers, a, true);

    compute(&k);
}

static void two_cuda(void **buffers, void *a)
{
    launch(arguments(buffers, a, true));
}

static void zero_cpu(void **buffers, void *arg)
{
    (void)arg;
    sp_fake_kernel_access((void *)STARPU_VECTOR_GET_PTR(buffers[0]),
                          STARPU_VECTOR_GET_NX(buffers[0]) * sizeof(float), 1);
    memset((void *)STARPU_VECTOR_GET_PTR(buffers[0]), 0,
           STARPU_VECTOR_GET_NX(buffers[0]) * sizeof(float));
}

static void zero_cuda(void **buffers, void *arg)
{
    (void)arg;
    MUST(!cudaMemsetAsync((void *)STARPU_VECTOR_GET_PTR(buffers[0]), 0,
                          STARPU_VECTOR_GET_NX(buffers[0]) * sizeof(float),
                          starpu_cuda_get_local_stream()));
}

static struct starpu_codelet one = {.cpu_funcs = {one_cpu},
                                    .cuda_funcs = {one_cuda},
                                    .cuda_flags = {STARPU_CUDA_ASYNC},
                                    .nbuffers = 1,
                                    .modes = {STARPU_RW},
                                    .name = "one"};
static struct starpu_codelet two = {.cpu_funcs = {two_cpu},
                                    .cuda_funcs = {two_cuda},
                                    .cuda_flags = {STARPU_CUDA_ASYNC},
                                    .nbuffers = 2,
                                    .modes = {STARPU_RW, STARPU_R},
                                    .name = "two"};
static struct starpu_codelet zero = {.cpu_funcs = {zero_cpu},
                                     .cuda_funcs = {zero_cuda},
                                     .cuda_flags = {STARPU_CUDA_ASYNC},
                                     .nbuffers = 1,
                                     .modes = {STARPU_W},
                                     .name = "zero"};

/* ---- what scenes share ----------------------------------------------------------------------- */

static void vector(starpu_data_handle_t *handle, unsigned n)
{
    starpu_vector_data_register(handle, -1, 0, n, sizeof(float));
}

static void insert(starpu_data_handle_t y, const starpu_data_handle_t *x, float a, unsigned where)
{
    float *kept = malloc(sizeof *kept);
    int err;

    MUST(kept);
    *kept = a;
    if (x)
        err = starpu_task_insert(&two, STARPU_RW, y, STARPU_R, *x, STARPU_CL_ARGS, kept,
                                 sizeof *kept, STARPU_EXECUTE_ON_WORKER, where, 0);
    else
        err = starpu_task_insert(&one, STARPU_RW, y, STARPU_CL_ARGS, kept, sizeof *kept,
                                 STARPU_EXECUTE_ON_WORKER, where, 0);
    MUST(!err);
}

static void clear(starpu_data_handle_t y, unsigned where)
{
    MUST(!starpu_task_insert(&zero, STARPU_W, y, STARPU_EXECUTE_ON_WORKER, where, 0));
}

/* Every element of y is `want`. */
static void check(starpu_data_handle_t y, float want)
{
    const float *values;
    unsigned n = starpu_vector_get_nx(y);

    MUST(!starpu_data_acquire(y, STARPU_R));
    values = (const float *)starpu_vector_get_local_ptr(y);
    sp_fake_kernel_access(values, n * sizeof *values, 0);
    for (unsigned i = 0; i < n; i++)
        if (values[i] != want) {
            fprintf(stderr, "element %u of %u is %g, not %g\n", i, n, (double)values[i],
                    (double)want);
            _exit(99);
        }
    starpu_data_release(y);
}

/* ---- scenes ---------------------------------------------------------------------------------- */

/* A ring of vectors: each takes in its neighbour, wherever that is. Whole numbers, so exactly. */
static void chains(void)
{
    enum { VECTORS = 5, STEPS = 60, N = 1111 };
    starpu_data_handle_t y[VECTORS];
    float want[VECTORS] = {0};
    struct sp_fake_counts c;
    int devices = start();

    for (int v = 0; v < VECTORS; v++) {
        vector(&y[v], N);
        clear(y[v], worker(v, devices));
    }
    for (int i = 0; i < STEPS; i++) {
        int v = i % VECTORS, x = (i + 1) % VECTORS;
        float a = i % 3 == 0 ? -1 : 1;

        if (i % 4 == 3) {
            insert(y[v], NULL, 1, worker(i, devices));
            want[v] += 1;
        } else {
            insert(y[v], &y[x], a, worker(i / 2, devices));
            want[v] = a * want[v] + want[x];
        }
    }
    for (int v = 0; v < VECTORS; v++) {
        check(y[v], want[v]);
        starpu_data_unregister(y[v]);
    }
    sp_fake_counts(0, &c);
    MUST(c.in && c.out && (devices < 2 || c.peer));
    starpu_shutdown();
}

/* Three times what a device may hold, 8 MiB, written, then read backwards. */
static void limit(void)
{
    enum { VECTORS = 24, N = MIB / sizeof(float) };
    starpu_data_handle_t y[VECTORS], sum;
    struct sp_fake_counts c;
    float want = 0;

    start();
    vector(&sum, N);
    clear(sum, worker(0, 1));
    for (int v = 0; v < VECTORS; v++) {
        vector(&y[v], N);
        clear(y[v], worker(0, 1));
        insert(y[v], NULL, 0, worker(0, 1));
        insert(y[v], NULL, (float)v, worker(0, 1));
    }
    for (int v = VECTORS; v-- > 0;) {
        insert(sum, &y[v], 1, worker(0, 1));
        want += (float)(v + 1);
    }
    check(sum, want);
    sp_fake_counts(0, &c);
    fprintf(stderr, "highest %.1f MiB, out %.1f MiB, in %.1f MiB, %zu allocations\n",
            (double)c.peak_bytes / MIB, (double)c.out_bytes / MIB, (double)c.in_bytes / MIB,
            c.allocations);
    MUST(c.peak_bytes <= 8 * MIB);
    MUST(c.out_bytes >= (VECTORS - 8) * MIB && c.in_bytes >= (VECTORS - 8) * MIB);
    for (int v = 0; v < VECTORS; v++)
        starpu_data_unregister(y[v]);
    starpu_data_unregister(sum);
    starpu_shutdown();
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void many(void)
{
    enum { VECTORS = 50, TASKS = 10000 };
    starpu_data_handle_t y[VECTORS];
    int devices = start();
    double begin;

    for (int v = 0; v < VECTORS; v++) {
        vector(&y[v], 16);
        clear(y[v], worker(v % devices, devices));
    }
    starpu_task_wait_for_all();
    begin = now_us();
    for (int i = 0; i < TASKS; i++)
        insert(y[i % VECTORS], NULL, 1, worker(i % VECTORS % devices, devices));
    starpu_task_wait_for_all();
    fprintf(stderr, "%.1f us a task\n", (now_us() - begin) / TASKS);
    for (int v = 0; v < VECTORS; v++) {
        check(y[v], TASKS / VECTORS);
        starpu_data_unregister(y[v]);
    }
    starpu_shutdown();
}

/* ---- what comes of them ---------------------------------------------------------------------- */

#define SCENE(f)                                                                                   \
    {                                                                                              \
#f, f                                                                                      \
    }

static const struct scene scenes[] = {SCENE(chains), SCENE(limit), SCENE(many)};

static void play(const char *scene, int devices, const char *settings)
{
    char said[2000];

    starpu_play(scene, devices, settings, 0, said, sizeof said);
}

static void test_chains(void **state)
{
    char settings[100];

    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        play("chains", devices, "SP_FAKE_GPU_CHECK=1");
        play("chains", devices, "SP_FAKE_GPU_CHECK=1 STARPU_CUDA_PIPELINE=0");
        play("chains", devices, "SP_FAKE_GPU_CHECK=1 STARPU_CUDA_PIPELINE=4");
        for (int seed = 1; seed <= 5; seed++) {
            snprintf(settings, sizeof settings,
                     "SP_FAKE_GPU_JITTER_US=500 SP_FAKE_GPU_SEED=%d SP_FAKE_GPU_CHECK=%d", seed,
                     seed % 2);
            play("chains", devices, settings);
        }
    }
}

static void test_limit(void **state)
{
    (void)state;
    play("limit", 1, "STARPU_LIMIT_CUDA_MEM=8 STARPU_SUBALLOCATOR=0 SP_FAKE_GPU_CHECK=1");
    play("limit", 1,
         "STARPU_LIMIT_CUDA_MEM=8 STARPU_SUBALLOCATOR=0 SP_FAKE_GPU_CHECK=1 "
         "SP_FAKE_GPU_JITTER_US=500");
    play("limit", 2, "STARPU_LIMIT_CUDA_MEM=8 STARPU_SUBALLOCATOR=0 SP_FAKE_GPU_JITTER_US=200");
}

static void test_many(void **state)
{
    (void)state;
    play("many", 1, "");
    play("many", 2, "");
    play("many", 2, "SP_FAKE_GPU_CHECK=1 SP_FAKE_GPU_JITTER_US=20");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_many),
    };

    scene_main(argc, argv, scenes, sizeof scenes / sizeof *scenes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
