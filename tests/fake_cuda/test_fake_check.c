/*
 * Tests how the fake CUDA runtime exposes programs that forget to wait: jitter makes them compute
 * something else, and the checker finds them whatever the timing is.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include "fake_cuda.h"
#include "scene.h"
#include <time.h>

enum { N = 64 };

#define OK(call) MUST((call) == cudaSuccess)

static struct {
    cudaStream_t a, b;
    cudaEvent_t event;
    float *d, *e; /* on device 0 */
    float *h;     /* pinned */
} m;

static void set_up(void)
{
    OK(cudaStreamCreateWithFlags(&m.a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&m.b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&m.event, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&m.d, N * sizeof *m.d));
    OK(cudaMalloc((void **)&m.e, N * sizeof *m.e));
    OK(cudaMallocHost((void **)&m.h, N * sizeof *m.h));
    OK(cudaMemset(m.d, 0, N * sizeof *m.d));
    OK(cudaDeviceSynchronize());
}

/* d += 1 */
static void CUDART_CB increment(void *arg)
{
    float *d = arg;

    sp_fake_kernel_name("increment");
    sp_fake_kernel_access(d, N * sizeof *d, 1);
    for (int i = 0; i < N; i++)
        d[i] += 1;
}

static void CUDART_CB read_it(void *arg)
{
    sp_fake_kernel_name("read");
    sp_fake_kernel_access(arg, N * sizeof(float), 0);
}

static void CUDART_CB read_half(void *arg)
{
    sp_fake_kernel_access(arg, N / 2 * sizeof(float), 0);
}

/* ---- scenes: races --------------------------------------------------------------------------- */

static void two_streams(void)
{
    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaLaunchHostFunc(m.b, read_it, m.d));
    OK(cudaDeviceSynchronize());
}

/* The same race, but the first access has long ended when the second begins. */
static void two_streams_apart(void)
{
    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    usleep(50000);
    OK(cudaLaunchHostFunc(m.b, read_it, m.d));
    OK(cudaDeviceSynchronize());
}

/* The event was recorded too early. */
static void early_event(void)
{
    set_up();
    OK(cudaEventRecord(m.event, m.a));
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaStreamWaitEvent(m.b, m.event, 0));
    OK(cudaMemcpyAsync(m.h, m.d, N * sizeof *m.h, cudaMemcpyDeviceToHost, m.b));
    OK(cudaDeviceSynchronize());
}

/* A plain copy from pageable memory, and a kernel that does not wait for the default stream. */
static void plain_copy(void)
{
    float h[N] = {0};

    set_up();
    OK(cudaMemcpy(m.d, h, sizeof h, cudaMemcpyHostToDevice));
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaDeviceSynchronize());
}

static void host_reads_early(void)
{
    set_up();
    OK(cudaMemcpyAsync(m.h, m.d, N * sizeof *m.h, cudaMemcpyDeviceToHost, m.a));
    usleep(20000);
    sp_fake_kernel_access(m.h, sizeof *m.h, 0);
    OK(cudaDeviceSynchronize());
}

static void host_writes_early(void)
{
    set_up();
    m.h[0] = 1;
    OK(cudaMemcpyAsync(m.d, m.h, N * sizeof *m.h, cudaMemcpyHostToDevice, m.a));
    sp_fake_kernel_access(m.h, sizeof *m.h, 1);
    OK(cudaDeviceSynchronize());
}

static void free_early(void)
{
    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaFree(m.d));
}

/* The access is over by then, but nobody waited for it. */
static void free_pooled_early(void)
{
    cudaStream_t s;
    void *p;

    OK(cudaMallocAsync(&p, 16, 0));
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMemsetAsync(p, 0, 16, s));
    usleep(50000);
    OK(cudaFreeAsync(p, 0));
    OK(cudaDeviceSynchronize());
}

/* Two copies share one row: the last of the one is the first of the other. */
static void shared_row(void)
{
    set_up();
    OK(cudaMemcpy2DAsync(m.d, 32, m.h, 8, 8, 4, cudaMemcpyHostToDevice, m.a));
    OK(cudaMemcpy2DAsync((char *)m.d + 96, 32, m.h, 8, 8, 4, cudaMemcpyHostToDevice, m.b));
    OK(cudaDeviceSynchronize());
}

/* The second reader conflicts with the writer, though not with the first reader. */
static void another_reader(void)
{
    cudaStream_t c;

    set_up();
    OK(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaEventRecord(m.event, m.a));
    OK(cudaStreamWaitEvent(m.b, m.event, 0));
    OK(cudaLaunchHostFunc(m.b, read_it, m.d));
    usleep(50000);
    OK(cudaLaunchHostFunc(c, read_it, m.d));
    OK(cudaDeviceSynchronize());
}

static void CUDART_CB silent(void *arg)
{
    *(float *)arg = 1;
}

/* Accesses queued before and after kernels report for them; the event is recorded too early. */
static void told_for_them(void)
{
    set_up();
    sp_fake_queue_access(m.a, "first", m.d, sizeof *m.d, 1);
    OK(cudaEventRecord(m.event, m.a));
    OK(cudaLaunchHostFunc(m.a, silent, m.d));
    sp_fake_queue_access(m.a, "first", m.d, sizeof *m.d, 1);
    OK(cudaStreamWaitEvent(m.b, m.event, 0));
    sp_fake_queue_access(m.b, "second", m.d, sizeof *m.d, 0);
    OK(cudaDeviceSynchronize());
}

/* ---- scenes: no races ------------------------------------------------------------------------ */

static void all_is_well(void)
{
    set_up();
    for (int i = 0; i < 200; i++) {
        /* stream order, an event, the host's wait, and its question */
        OK(cudaMemcpyAsync(m.d, m.h, N * sizeof *m.h, cudaMemcpyHostToDevice, m.a));
        OK(cudaLaunchHostFunc(m.a, increment, m.d));
        OK(cudaEventRecord(m.event, m.a));
        OK(cudaStreamWaitEvent(m.b, m.event, 0));
        OK(cudaLaunchHostFunc(m.b, read_it, m.d));
        OK(cudaLaunchHostFunc(m.a, read_half, m.d));
        OK(cudaEventRecord(m.event, m.b));
        while (cudaEventQuery(m.event) != cudaSuccess)
            ;
        sp_fake_kernel_access(m.h, N * sizeof *m.h, 1);
        while (cudaStreamQuery(m.a) != cudaSuccess)
            ;
        OK(cudaMemsetAsync(m.d, 0, N * sizeof *m.d, m.b));
        OK(cudaStreamSynchronize(m.b));
    }
    /* interleaved rows, and halves */
    OK(cudaMemcpy2DAsync(m.d, 32, m.h, 8, 8, 4, cudaMemcpyHostToDevice, m.a));
    OK(cudaMemcpy2DAsync((char *)m.d + 8, 32, m.h, 8, 8, 4, cudaMemcpyHostToDevice, m.b));
    OK(cudaDeviceSynchronize());
    OK(cudaMemsetAsync(m.d + N / 2, 0, N / 2 * sizeof *m.d, m.a));
    OK(cudaLaunchHostFunc(m.b, read_half, m.d));
    OK(cudaDeviceSynchronize());
    /* the default stream and an ordinary one */
    OK(cudaMemcpy(m.d, m.e, N * sizeof *m.d, cudaMemcpyDeviceToDevice));
    OK(cudaStreamDestroy(m.b));
    OK(cudaStreamCreate(&m.b));
    OK(cudaLaunchHostFunc(m.b, increment, m.d));
    OK(cudaMemset(m.d, 0, N * sizeof *m.d));
    OK(cudaStreamSynchronize(0));
    OK(cudaFree(m.d));
    OK(cudaFree(m.e));
    OK(cudaFreeHost(m.h));
}

/* ---- scenes: jitter -------------------------------------------------------------------------- */

/* d = 1 in one stream, += 1 in another; status 10 + d. */
static void chain(int wait)
{
    float h[N];

    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaEventRecord(m.event, m.a));
    if (wait)
        OK(cudaStreamWaitEvent(m.b, m.event, 0));
    OK(cudaMemcpyAsync(m.h, m.d, N * sizeof *m.h, cudaMemcpyDeviceToHost, m.b));
    OK(cudaStreamSynchronize(m.b));
    memcpy(h, m.h, sizeof h);
    OK(cudaDeviceSynchronize());
    _exit(10 + (int)h[0]);
}

static void chain_that_waits(void)
{
    chain(1);
}

static void chain_that_does_not(void)
{
    chain(0);
}

/* 40 items of 2.5 ms on average. */
static void takes_time(void)
{
    struct timespec begin, end;

    set_up();
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 40; i++)
        OK(cudaMemsetAsync(m.d, 0, N * sizeof *m.d, m.a));
    OK(cudaStreamSynchronize(m.a));
    clock_gettime(CLOCK_MONOTONIC, &end);
    MUST((double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9 > 0.05);
}

/* ---- what comes of them ---------------------------------------------------------------------- */

#define SCENE(f)                                                                                   \
    {                                                                                              \
#f, f                                                                                      \
    }

static const struct scene scenes[] = {
    SCENE(two_streams),      SCENE(two_streams_apart),   SCENE(early_event),
    SCENE(plain_copy),       SCENE(host_reads_early),    SCENE(host_writes_early),
    SCENE(free_early),       SCENE(free_pooled_early),   SCENE(told_for_them),
    SCENE(another_reader),   SCENE(shared_row),          SCENE(all_is_well),
    SCENE(chain_that_waits), SCENE(chain_that_does_not), SCENE(takes_time),
};

/* Both ends of the race, in any order: which of them is met first is chance. */
static const struct {
    const char *scene, *one, *other;
} races[] = {
    {"two_streams", "written by increment (device 0, stream", "read by read (device 0, stream"},
    {"two_streams_apart", "written by increment", "read by read"},
    {"early_event", "written by increment", "read by copy device to host"},
    {"plain_copy", "written by increment", "written by copy host to device"},
    {"host_reads_early", "written by copy device to host", "read by the host"},
    {"host_writes_early", "read by copy host to device", "written by the host"},
    {"free_early", "written by increment", "written by the host, freeing it"},
    {"free_pooled_early", "written by fill", "written by freeing it"},
    {"another_reader", "written by increment", "read by read"},
    {"told_for_them", "written by first", "read by second"},
    {"shared_row", "written by copy host to device", "written by copy host to device"},
};

static void test_races(void **state)
{
    char said[1000], settings[100];

    (void)state;
    for (size_t i = 0; i < sizeof races / sizeof *races; i++)
        for (int jitter = 0; jitter <= 1000; jitter += 1000) {
            int status;

            snprintf(settings, sizeof settings, "SP_FAKE_GPU_CHECK=1 SP_FAKE_GPU_JITTER_US=%d",
                     jitter);
            status = scene_play(races[i].scene, settings, said, sizeof said);
            if (!jitter)
                print_message("%s: %s", races[i].scene, said);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
            assert_non_null(strstr(said, "fake cuda: race at"));
            assert_non_null(strstr(said, races[i].one));
            assert_non_null(strstr(said, races[i].other));
            /* Nobody is told without being asked. */
            snprintf(settings, sizeof settings, "SP_FAKE_GPU_JITTER_US=%d", jitter);
            assert_int_equal(scene_play(races[i].scene, settings, said, sizeof said), 0);
        }
}

static void test_no_race(void **state)
{
    char said[1000];

    (void)state;
    for (int trial = 0; trial < 4; trial++) {
        assert_int_equal(scene_play("all_is_well",
                                    trial % 2 ? "SP_FAKE_GPU_CHECK=1 SP_FAKE_GPU_JITTER_US=100"
                                              : "SP_FAKE_GPU_CHECK=1",
                                    said, sizeof said),
                         0);
        assert_string_equal(said, "");
    }
}

static void test_jitter(void **state)
{
    int right[2] = {0}, trials = 20;
    char said[100], settings[100];

    (void)state;
    for (int seed = 0; seed < trials; seed++)
        for (int waits = 0; waits < 2; waits++) {
            snprintf(settings, sizeof settings, "SP_FAKE_GPU_JITTER_US=5000 SP_FAKE_GPU_SEED=%d",
                     seed);
            right[waits] += scene_play(waits ? "chain_that_waits" : "chain_that_does_not", settings,
                                       said, sizeof said) == (11 << 8);
        }
    print_message("right of %d: %d with the wait, %d without\n", trials, right[1], right[0]);
    assert_int_equal(right[1], trials);
    assert_true(right[0] < trials);
    assert_int_equal(scene_play("takes_time", "SP_FAKE_GPU_JITTER_US=5000", said, sizeof said), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_races),
        cmocka_unit_test(test_no_race),
        cmocka_unit_test(test_jitter),
    };

    scene_main(argc, argv, scenes, sizeof scenes / sizeof *scenes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
