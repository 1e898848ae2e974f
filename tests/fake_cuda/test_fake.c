/*
 * The fake CUDA runtime under programs that make mistakes: it ends programs that break a rule of
 * CUDA; its checker finds two accesses that nothing orders, whatever the timing is; jitter makes
 * such programs compute something else; and memory that nobody wrote holds no numbers. It does right what
 * it is asked for, as the program computes on it what it computes on the CPU: gpu.sh.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>
#include "fake_cudart.h"
#include "scene.h"

enum { N = 64, BYTES = N * sizeof(float) };

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
    OK(cudaMalloc((void **)&m.d, BYTES));
    OK(cudaMalloc((void **)&m.e, BYTES));
    OK(cudaMallocHost((void **)&m.h, BYTES));
    OK(cudaMemset(m.d, 0, BYTES));
    OK(cudaDeviceSynchronize());
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* d += 1 */
static void CUDART_CB increment(void *arg)
{
    float *d = arg;

    sp_fake_kernel_name("increment");
    sp_fake_kernel_access(d, BYTES, 1);
    for (int i = 0; i < N; i++)
        d[i] += 1;
}

static void CUDART_CB read_it(void *arg)
{
    sp_fake_kernel_name("read");
    sp_fake_kernel_access(arg, BYTES, 0);
}

static void CUDART_CB read_half(void *arg)
{
    sp_fake_kernel_access(arg, BYTES / 2, 0);
}

static void CUDART_CB touch(void *arg)
{
    *(volatile char *)arg = 1;
}

static void CUDART_CB call_cuda(void *arg)
{
    sp_fake_kernel_name("caller");
    cudaFree(arg);
}

static void launch(cudaStream_t stream, cudaHostFn_t kernel, void *arg)
{
    OK(cudaLaunchHostFunc(stream, kernel, arg));
}

static void on_default_stream(cudaHostFn_t kernel, void *arg)
{
    launch(0, kernel, arg);
    OK(cudaDeviceSynchronize());
}

static void copy_to_host(cudaStream_t stream)
{
    OK(cudaMemcpyAsync(m.h, m.d, BYTES, cudaMemcpyDeviceToHost, stream));
}

/* Later items of `stream` wait for those in m.a now. */
static void wait_for_a(cudaStream_t stream)
{
    OK(cudaEventRecord(m.event, m.a));
    OK(cudaStreamWaitEvent(stream, m.event, 0));
}

static bool is(const char *name, const char *scene)
{
    return !strcmp(name, scene);
}

/* ---- scenes: accesses that nothing orders ---------------------------------------------------- */

/* Also those that a pause of 50 ms keeps apart, and who only reads after a reader that waited. */
static void race(const char *name)
{
    float pageable[N] = {0};
    cudaStream_t c;
    void *p;

    if (is(name, "two streams")) {
        launch(m.a, increment, m.d);
        launch(m.b, read_it, m.d);
    } else if (is(name, "two streams apart")) {
        launch(m.a, increment, m.d);
        usleep(50000);
        launch(m.b, read_it, m.d);
    } else if (is(name, "early event")) {
        wait_for_a(m.b);
        launch(m.a, increment, m.d);
        copy_to_host(m.b);
    } else if (is(name, "plain copy")) { /* from pageable memory, and a non-blocking stream */
        OK(cudaMemcpy(m.d, pageable, BYTES, cudaMemcpyHostToDevice));
        launch(m.a, increment, m.d);
    } else if (is(name, "host reads early")) {
        copy_to_host(m.a);
        usleep(20000);
        sp_fake_kernel_access(m.h, sizeof *m.h, 0);
    } else if (is(name, "host writes early")) {
        OK(cudaMemcpyAsync(m.d, m.h, BYTES, cudaMemcpyHostToDevice, m.a));
        sp_fake_kernel_access(m.h, sizeof *m.h, 1);
    } else if (is(name, "freed early")) {
        launch(m.a, increment, m.d);
        OK(cudaFree(m.d));
    } else if (is(name, "freed early in a stream")) {
        OK(cudaMallocAsync(&p, 16, 0));
        OK(cudaMemsetAsync(p, 0, 16, m.a));
        usleep(50000);
        OK(cudaFreeAsync(p, 0));
    } else if (is(name, "another reader")) {
        OK(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
        launch(m.a, increment, m.d);
        wait_for_a(m.b);
        launch(m.b, read_it, m.d);
        usleep(50000);
        launch(c, read_it, m.d);
    }
    OK(cudaDeviceSynchronize());
}

/* ---- scenes: no mistakes --------------------------------------------------------------------- */

static void order_everything(void)
{
    for (int i = 0; i < 200; i++) {
        /* stream order, an event, the host's wait, and its question */
        OK(cudaMemcpyAsync(m.d, m.h, BYTES, cudaMemcpyHostToDevice, m.a));
        launch(m.a, increment, m.d);
        wait_for_a(m.b);
        launch(m.b, read_it, m.d);
        launch(m.a, read_half, m.d);
        OK(cudaEventRecord(m.event, m.b));
        while (cudaEventQuery(m.event) != cudaSuccess)
            ;
        sp_fake_kernel_access(m.h, BYTES, 1);
        while (cudaStreamQuery(m.a) != cudaSuccess)
            ;
        OK(cudaMemsetAsync(m.d, 0, BYTES, m.b));
        OK(cudaStreamSynchronize(m.b));
    }
    /* halves */
    OK(cudaMemsetAsync(m.d + N / 2, 0, BYTES / 2, m.a));
    launch(m.b, read_half, m.d);
    OK(cudaDeviceSynchronize());
    /* the default stream and an ordinary one */
    OK(cudaMemcpy(m.d, m.e, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaStreamDestroy(m.b));
    OK(cudaStreamCreate(&m.b));
    launch(m.b, increment, m.d);
    OK(cudaMemset(m.d, 0, BYTES));
    OK(cudaStreamSynchronize(0));
    OK(cudaFree(m.d));
    OK(cudaFree(m.e));
    OK(cudaFreeHost(m.h));
}

/* New memory is NaN in bf16, f16, f32 and f64. */
static void find_no_numbers(void)
{
    const unsigned char nan[2] = {0xf7, 0x7f}, *h = (unsigned char *)m.h;

    MUST(!memcmp(h, nan, 2));
    OK(cudaMemcpy(m.h, m.e, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < (int)BYTES; i++)
        MUST(h[i] == nan[i % 2]);
}

/* d = 1 in one stream, read in another; status 10 + d. */
static void chain(bool waits)
{
    int d;

    launch(m.a, increment, m.d);
    if (waits)
        wait_for_a(m.b);
    copy_to_host(m.b);
    OK(cudaStreamSynchronize(m.b));
    d = (int)m.h[0];
    OK(cudaDeviceSynchronize());
    _exit(10 + d);
}

/* ---- scenes: mistakes ------------------------------------------------------------------------ */

static char *device_memory(int device, size_t bytes)
{
    void *p = NULL;

    OK(cudaSetDevice(device));
    OK(cudaMalloc(&p, bytes));
    OK(cudaSetDevice(0));
    return p;
}

/* Device 0 reads memory of a pool of device 1, which lets it or not, and forgets to free it. */
static void read_pooled_peer(bool allowed)
{
    const struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 1}};
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    cudaStream_t s;
    void *p;

    OK(cudaDeviceEnablePeerAccess(1, 0)); /* is of cudaMalloc alone */
    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&s));
    OK(cudaMemPoolCreate(&pool, &props));
    if (allowed)
        OK(cudaMemPoolSetAccess(pool, &access, 1));
    OK(cudaMallocFromPoolAsync(&p, BYTES, pool, s));
    OK(cudaSetDevice(0));
    on_default_stream(read_it, p);
    cudaMemPoolDestroy(pool);
}

static void mistake(const char *name)
{
    char host[BYTES + 1] = {0}, *d = device_memory(0, BYTES), *freed = device_memory(0, BYTES);
    char *odd = device_memory(0, 1000), *peer = device_memory(1, BYTES);
    void *pooled;

    OK(cudaFree(freed));
    OK(cudaMallocAsync(&pooled, 16, 0));
    if (is(name, "wrong kind"))
        cudaMemcpy(host, d, 16, cudaMemcpyHostToDevice);
    else if (is(name, "past the end"))
        cudaMemcpy(d, host, BYTES + 1, cudaMemcpyHostToDevice);
    else if (is(name, "wrong peer"))
        cudaMemcpyPeer(peer, 0, peer, 1, 16);
    else if (is(name, "host memory filled"))
        cudaMemset(host, 0, sizeof host);
    else if (is(name, "freed twice"))
        cudaFree(freed);
    else if (is(name, "freed inside"))
        cudaFree(d + 1);
    else if (is(name, "freed twice in a stream")) {
        OK(cudaFreeAsync(pooled, 0));
        cudaFreeAsync(pooled, 0);
    } else if (is(name, "copied after it was freed"))
        cudaMemcpy(host, freed, 16, cudaMemcpyDeviceToHost);
    else if (is(name, "used after it was freed"))
        on_default_stream(touch, freed);
    else if (is(name, "written past the end")) {
        on_default_stream(touch, odd + 1000);
        cudaFree(odd);
    } else if (is(name, "written far past the end"))
        on_default_stream(touch, odd + 1024);
    else if (is(name, "called from a kernel"))
        on_default_stream(call_cuda, d);
    else if (is(name, "old stream")) {
        OK(cudaStreamDestroy(m.a));
        cudaStreamSynchronize(m.a);
    } else if (is(name, "old event")) {
        OK(cudaEventDestroy(m.event));
        cudaEventQuery(m.event);
    } else if (is(name, "event of another")) {
        OK(cudaSetDevice(1));
        OK(cudaEventCreate(&m.event));
        cudaEventRecord(m.event, m.a);
    } else if (is(name, "kernel reads host"))
        on_default_stream(read_it, host);
    else if (is(name, "kernel reads peer"))
        on_default_stream(read_it, peer);
    else if (is(name, "kernel reads enabled peer")) {
        OK(cudaDeviceEnablePeerAccess(1, 0));
        on_default_stream(read_it, peer);
    } else if (is(name, "kernel reads pool of peer"))
        read_pooled_peer(false);
    else if (is(name, "pool destroyed in use"))
        read_pooled_peer(true);
    else if (is(name, "kernel of another")) {
        OK(cudaSetDevice(1));
        launch(m.a, read_it, m.d);
        OK(cudaStreamSynchronize(m.a));
    } else if (is(name, "host reads device"))
        sp_fake_kernel_access(peer, 4, 0);
    else if (is(name, "unknown"))
        cudaDeviceSetLimit(cudaLimitStackSize, 1);
}

/* ---- scenes: how long things take ------------------------------------------------------------ */

enum { MANY = 200000 };

static void CUDART_CB read_many(void *arg)
{
    sp_fake_kernel_access(arg, MANY, 0);
}

/* Two things at once on streams of their own, of MANY bytes each. At 1 MB/s a copy takes 200 ms; at 2 a
 * kernel takes 100. */
static void time_two(const char *name)
{
    const struct timing {
        const char *name;
        bool to_device; /* the second copy */
        bool kernels;   /* instead of the first, two in a row */
        float least, most;
    } timings[] = {{"two copies one way", .least = 400, .most = 600},
                   {"a copy each way", .to_device = true, .least = 200, .most = 380},
                   {"kernels and copies", .kernels = true, .least = 200, .most = 380}};
    float a_ms, b_ms;
    cudaEvent_t event[3];
    char *device, *host;

    for (size_t i = 0; i < sizeof timings / sizeof *timings; i++) {
        const struct timing *t = &timings[i];

        if (!is(name, t->name))
            continue;
        OK(cudaMalloc((void **)&device, 2 * MANY));
        OK(cudaMallocHost((void **)&host, 2 * MANY));
        for (int k = 0; k < 3; k++)
            OK(cudaEventCreate(&event[k]));
        OK(cudaEventRecord(event[0], m.a));
        for (int k = 0; k < 2 && t->kernels; k++)
            launch(m.a, read_many, device);
        if (!t->kernels)
            OK(cudaMemcpyAsync(host, device, MANY, cudaMemcpyDeviceToHost, m.a));
        OK(cudaEventRecord(event[1], m.a));
        if (t->to_device)
            OK(cudaMemcpyAsync(device + MANY, host + MANY, MANY, cudaMemcpyHostToDevice, m.b));
        else
            OK(cudaMemcpyAsync(host + MANY, device + MANY, MANY, cudaMemcpyDeviceToHost, m.b));
        OK(cudaEventRecord(event[2], m.b));
        OK(cudaDeviceSynchronize());
        OK(cudaEventElapsedTime(&a_ms, event[0], event[1]));
        OK(cudaEventElapsedTime(&b_ms, event[0], event[2]));
        fprintf(stderr, "%.0f and %.0f ms", a_ms, b_ms);
        a_ms = a_ms > b_ms ? a_ms : b_ms;
        MUST(a_ms >= t->least - 1 && a_ms <= t->most);
    }
}

static void play(const char *name)
{
    set_up();
    time_two(name);
    if (is(name, "all in order"))
        order_everything();
    else if (is(name, "no numbers"))
        find_no_numbers();
    else if (is(name, "chain that waits") || is(name, "chain that does not"))
        chain(is(name, "chain that waits"));
    race(name);
    mistake(name);
}

/* ---- what comes of them ---------------------------------------------------------------------- */

enum { RACE = 1 };

/* How a scene ends: well, 0; by a race, of whose ends either is met first; by a signal, -n. */
static const struct {
    const char *scene;
    int end;
    const char *says, *other;
} scenes[] = {
    {"two streams", RACE, "written by increment (device 0, stream", "read by read (device 0"},
    {"two streams apart", RACE, "written by increment", "read by read"},
    {"early event", RACE, "written by increment", "read by copy device to host"},
    {"plain copy", RACE, "written by increment", "written by copy host to device"},
    {"host reads early", RACE, "written by copy device to host", "read by the host"},
    {"host writes early", RACE, "read by copy host to device", "written by the host"},
    {"freed early", RACE, "written by increment", "written by the host, freeing it"},
    {"freed early in a stream", RACE, "written by fill", "written by freeing it"},
    {"another reader", RACE, "written by increment", "read by read"},
    {"all in order", 0, "", ""},
    {"no numbers", 0, "", ""},
    {"kernel reads enabled peer", 0, "", ""},
    {"wrong kind", -SIGABRT, "cudaMemcpy: invalid argument: copy host to device, but to", ""},
    {"past the end", -SIGABRT, "(device 0, byte 0 of 256) are not all in one piece", ""},
    {"wrong peer", -SIGABRT, "(device 1, byte 0 of 256) is not on device 0", ""},
    {"host memory filled", -SIGABRT, "cudaMemset: invalid argument: 257 bytes at", ""},
    {"freed twice", -SIGABRT, "(memory that was freed) was not allocated", ""},
    {"freed inside", -SIGABRT, "(device 0, byte 1 of 256) was not allocated", ""},
    {"freed twice in a stream", -SIGABRT, "is of no pool, or is freed already", ""},
    {"copied after it was freed", -SIGABRT, "(memory that was freed)", ""},
    {"used after it was freed", -SIGSEGV, "", ""},
    {"written past the end", -SIGABRT, "cudaFree: the 1000 bytes at", ""},
    {"written far past the end", -SIGSEGV, "", ""},
    {"called from a kernel", -SIGABRT, "cudaFree: called from a kernel (caller)", ""},
    {"old stream", -SIGABRT, "is no stream any more", ""},
    {"old event", -SIGABRT, "is no event, or no more", ""},
    {"event of another", -SIGABRT, "an event of device 1 recorded in a stream of device 0", ""},
    {"kernel reads host", -SIGABRT, "kernel read accesses 256 bytes at", ""},
    {"kernel reads peer", -SIGABRT, "peer access is not enabled", ""},
    {"kernel reads pool of peer", -SIGABRT, "its pool gives no access", ""},
    {"pool destroyed in use", -SIGABRT, "1 pieces of the pool are not freed", ""},
    {"kernel of another", -SIGABRT, "was launched with device 1 as the current one", ""},
    {"host reads device", -SIGABRT, "the host accesses 4 bytes at", ""},
    {"unknown", -SIGABRT, "cudaDeviceSetLimit: not known to the fake", ""},
};

enum { SCENES = sizeof scenes / sizeof *scenes };

static void play_scene(int i, int check, int jitter)
{
    char said[1000], settings[100];
    bool quiet = scenes[i].end == RACE && !check; /* Nobody is told without being asked. */
    int end;

    snprintf(settings, sizeof settings,
             "SP_FAKE_GPUS=2 SP_FAKE_GPU_CHECK=%d SP_FAKE_GPU_JITTER_US=%d", check, jitter);
    end = scene_play(scenes[i].scene, settings, said, sizeof said);
    print_message("%s, %s: %s", scenes[i].scene, settings, *said ? said : "\n");
    assert_int_equal(end, quiet ? 0 : scenes[i].end);
    if (quiet)
        return;
    assert_non_null(strstr(said, scenes[i].end == RACE ? "fake cuda: race at" : ""));
    assert_non_null(strstr(said, scenes[i].says));
    assert_non_null(strstr(said, scenes[i].other));
}

static void test_scenes(void **state)
{
    (void)state;
    for (int i = 0; i < SCENES; i++) {
        play_scene(i, 1, 0);
        if (scenes[i].end >= 0) {
            play_scene(i, 1, 1000);
            play_scene(i, 0, 0);
        }
    }
}

/* Copies take turns in each direction, kernels among themselves, and all at their rates. */
static void test_rates(void **state)
{
    static const char *const pairs[] = {"two copies one way", "a copy each way",
                                        "kernels and copies"};
    char said[1000];

    (void)state;
    for (int i = 0; i < 3; i++) {
        int end = scene_play(pairs[i], "SP_FAKE_GPUS=2 SP_FAKE_GPU_BUS=1 SP_FAKE_GPU_KERNELS=2",
                             said, sizeof said);

        print_message("%s%s%s\n", pairs[i], *said ? ": " : "", said);
        assert_int_equal(end, 0);
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
            right[waits] += scene_play(waits ? "chain that waits" : "chain that does not", settings,
                                       said, sizeof said) == 11;
        }
    print_message("right of %d: %d with the wait, %d without\n", trials, right[1], right[0]);
    assert_int_equal(right[1], trials);
    assert_true(right[0] < trials);
}

/* A setting that is no number ends the run. */
static void test_settings(void **state)
{
    char said[1000];

    (void)state;
    scene_play("no numbers", "SP_FAKE_GPUS=two", said, sizeof said);
    assert_non_null(strstr(said, "SP_FAKE_GPUS=two is no number from 0 to 16"));
    scene_play("no numbers", "SP_FAKE_GPU_MEM=1T", said, sizeof said);
    assert_non_null(strstr(said, "SP_FAKE_GPU_MEM=1T is no number"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scenes),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_settings),
    };

    scene_main(argc, argv, play);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
