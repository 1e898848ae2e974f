/*
 * What the fake CUDA runtime does for tests of programs that make mistakes: it ends those that break
 * a rule of CUDA; its checker finds two accesses that nothing orders, whatever the timing is; jitter
 * makes such programs compute something else; and memory that nobody wrote holds no numbers. That it
 * does right what it is asked for shows where the program computes on it what it computes on the CPU.
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

static void copy_to_host(cudaStream_t stream)
{
    OK(cudaMemcpyAsync(m.h, m.d, BYTES, cudaMemcpyDeviceToHost, stream));
}

/* ---- scenes: races --------------------------------------------------------------------------- */

static void two_streams(void)
{
    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaLaunchHostFunc(m.b, read_it, m.d));
    OK(cudaDeviceSynchronize());
}

/* As often in time: the first has long ended when the second begins. */
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
    copy_to_host(m.b);
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
    copy_to_host(m.a);
    usleep(20000);
    sp_fake_kernel_access(m.h, sizeof *m.h, 0);
    OK(cudaDeviceSynchronize());
}

static void host_writes_early(void)
{
    set_up();
    m.h[0] = 1;
    OK(cudaMemcpyAsync(m.d, m.h, BYTES, cudaMemcpyHostToDevice, m.a));
    sp_fake_kernel_access(m.h, sizeof *m.h, 1);
    OK(cudaDeviceSynchronize());
}

static void free_early(void)
{
    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaFree(m.d));
}

/* Over by then, which nobody waited for. */
static void free_pooled_early(void)
{
    void *p;

    set_up();
    OK(cudaMallocAsync(&p, 16, 0));
    OK(cudaMemsetAsync(p, 0, 16, m.a));
    usleep(50000);
    OK(cudaFreeAsync(p, 0));
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

/* ---- scenes: no races ------------------------------------------------------------------------ */

static void all_is_well(void)
{
    set_up();
    for (int i = 0; i < 200; i++) {
        /* stream order, an event, the host's wait, and its question */
        OK(cudaMemcpyAsync(m.d, m.h, BYTES, cudaMemcpyHostToDevice, m.a));
        OK(cudaLaunchHostFunc(m.a, increment, m.d));
        OK(cudaEventRecord(m.event, m.a));
        OK(cudaStreamWaitEvent(m.b, m.event, 0));
        OK(cudaLaunchHostFunc(m.b, read_it, m.d));
        OK(cudaLaunchHostFunc(m.a, read_half, m.d));
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
    OK(cudaLaunchHostFunc(m.b, read_half, m.d));
    OK(cudaDeviceSynchronize());
    /* the default stream and an ordinary one */
    OK(cudaMemcpy(m.d, m.e, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaStreamDestroy(m.b));
    OK(cudaStreamCreate(&m.b));
    OK(cudaLaunchHostFunc(m.b, increment, m.d));
    OK(cudaMemset(m.d, 0, BYTES));
    OK(cudaStreamSynchronize(0));
    OK(cudaFree(m.d));
    OK(cudaFree(m.e));
    OK(cudaFreeHost(m.h));
}

/* New memory is no number, in any type. */
static void no_numbers(void)
{
    unsigned char expected[2] = {0xf7, 0x7f}; /* NaN in bf16, f16, f32 and f64 */

    set_up();
    MUST(!memcmp(m.h, expected, 2));
    OK(cudaMemcpy(m.h, m.e, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BYTES; i++)
        MUST(((unsigned char *)m.h)[i] == expected[i % 2]);
}

/* ---- scenes: jitter -------------------------------------------------------------------------- */

/* d = 1 in one stream, += 1 in another; status 10 + d. */
static void chain(int wait)
{
    int d;

    set_up();
    OK(cudaLaunchHostFunc(m.a, increment, m.d));
    OK(cudaEventRecord(m.event, m.a));
    if (wait)
        OK(cudaStreamWaitEvent(m.b, m.event, 0));
    copy_to_host(m.b);
    OK(cudaStreamSynchronize(m.b));
    d = (int)m.h[0];
    OK(cudaDeviceSynchronize());
    _exit(10 + d);
}

static void chain_that_waits(void)
{
    chain(1);
}

static void chain_that_does_not(void)
{
    chain(0);
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

static char *pooled_memory(void)
{
    void *p = NULL;

    OK(cudaMallocAsync(&p, 16, 0));
    return p;
}

static char *freed_memory(void)
{
    char *p = device_memory(0, 16);

    OK(cudaFree(p));
    return p;
}

static void on_stream(cudaStream_t stream, cudaHostFn_t kernel, void *arg)
{
    OK(cudaLaunchHostFunc(stream, kernel, arg));
    OK(cudaDeviceSynchronize());
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

static void CUDART_CB access_it(void *arg)
{
    sp_fake_kernel_name("reader");
    sp_fake_kernel_access(arg, 16, 0);
}

static void wrong_kind(void)
{
    char host[16];

    cudaMemcpy(host, device_memory(0, 16), 16, cudaMemcpyHostToDevice);
}

static void past_the_end(void)
{
    char host[32];

    cudaMemcpy(device_memory(0, 16), host, 17, cudaMemcpyHostToDevice);
}

static void wrong_peer(void)
{
    cudaMemcpyPeer(device_memory(1, 16), 0, device_memory(1, 16), 1, 16);
}

static void fill_host(void)
{
    char host[16];

    cudaMemset(host, 0, sizeof host);
}

static void free_twice(void)
{
    cudaFree(freed_memory());
}

static void free_inside(void)
{
    cudaFree(device_memory(0, 16) + 1);
}

static void free_pooled_twice(void)
{
    char *p = pooled_memory();

    OK(cudaFreeAsync(p, 0));
    cudaFreeAsync(p, 0);
}

static void copy_from_freed(void)
{
    char host[16];

    cudaMemcpy(host, freed_memory(), 16, cudaMemcpyDeviceToHost);
}

static void use_after_free(void)
{
    on_stream(0, touch, freed_memory());
}

static void write_past_the_end(void)
{
    char *p = device_memory(0, 1000);

    on_stream(0, touch, p + 1000);
    cudaFree(p);
}

static void write_far_past_the_end(void)
{
    on_stream(0, touch, device_memory(0, 1000) + 1024);
}

static void call_from_kernel(void)
{
    on_stream(0, call_cuda, device_memory(0, 10));
}

static void old_stream(void)
{
    set_up();
    OK(cudaStreamDestroy(m.a));
    cudaStreamSynchronize(m.a);
}

static void old_event(void)
{
    set_up();
    OK(cudaEventDestroy(m.event));
    cudaEventQuery(m.event);
}

static void event_of_another(void)
{
    set_up();
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&m.event));
    cudaEventRecord(m.event, m.a);
}

static void kernel_reads_host(void)
{
    static char host[16];

    on_stream(0, access_it, host);
}

static void kernel_reads_peer(void)
{
    on_stream(0, access_it, device_memory(1, 16));
}

static void kernel_reads_enabled_peer(void)
{
    OK(cudaDeviceEnablePeerAccess(1, 0));
    kernel_reads_peer();
}

/* Device 0 reads memory of a pool of device 1, which lets it or not. */
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

    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&s));
    OK(cudaMemPoolCreate(&pool, &props));
    if (allowed)
        OK(cudaMemPoolSetAccess(pool, &access, 1));
    OK(cudaMallocFromPoolAsync(&p, 16, pool, s));
    OK(cudaSetDevice(0));
    on_stream(0, access_it, p);
    cudaMemPoolDestroy(pool);
}

static void pooled_peer(void)
{
    OK(cudaDeviceEnablePeerAccess(1, 0)); /* is of cudaMalloc alone */
    read_pooled_peer(false);
}

static void pool_in_use(void)
{
    read_pooled_peer(true);
}

static void host_reads_device(void)
{
    sp_fake_kernel_access(device_memory(1, 16), 4, 0);
}

static void kernel_of_another(void)
{
    set_up();
    OK(cudaSetDevice(1));
    OK(cudaLaunchHostFunc(m.a, access_it, m.d));
    OK(cudaStreamSynchronize(m.a));
}

static void unknown(void)
{
    cudaDeviceSetLimit(cudaLimitStackSize, 1);
}

/* ---- what comes of them ---------------------------------------------------------------------- */

enum { RACE = -1 };

/* How a scene ends: well, 0; by a race, of whose ends either is met first; by a signal. */
static const struct {
    struct scene scene;
    int end;
    const char *says, *other;
} table[] = {
    {SCENE(two_streams), RACE, "written by increment (device 0, stream", "read by read (device 0"},
    {SCENE(two_streams_apart), RACE, "written by increment", "read by read"},
    {SCENE(early_event), RACE, "written by increment", "read by copy device to host"},
    {SCENE(plain_copy), RACE, "written by increment", "written by copy host to device"},
    {SCENE(host_reads_early), RACE, "written by copy device to host", "read by the host"},
    {SCENE(host_writes_early), RACE, "read by copy host to device", "written by the host"},
    {SCENE(free_early), RACE, "written by increment", "written by the host, freeing it"},
    {SCENE(free_pooled_early), RACE, "written by fill", "written by freeing it"},
    {SCENE(another_reader), RACE, "written by increment", "read by read"},
    {SCENE(all_is_well), 0, "", ""},
    {SCENE(no_numbers), 0, "", ""},
    {SCENE(kernel_reads_enabled_peer), 0, "", ""},
    {SCENE(wrong_kind), SIGABRT, "cudaMemcpy: invalid argument: copy host to device, but to", ""},
    {SCENE(past_the_end), SIGABRT, "(device 0, byte 0 of 16) are not all in one piece", ""},
    {SCENE(wrong_peer), SIGABRT, "(device 1, byte 0 of 16) is not on device 0", ""},
    {SCENE(fill_host), SIGABRT, "cudaMemset: invalid argument: 16 bytes at", ""},
    {SCENE(free_twice), SIGABRT, "(memory that was freed) was not allocated", ""},
    {SCENE(free_inside), SIGABRT, "(device 0, byte 1 of 16) was not allocated", ""},
    {SCENE(free_pooled_twice), SIGABRT, "is of no pool, or is freed already", ""},
    {SCENE(copy_from_freed), SIGABRT, "(memory that was freed)", ""},
    {SCENE(use_after_free), SIGSEGV, "", ""},
    {SCENE(write_past_the_end), SIGABRT, "cudaFree: the 1000 bytes at", ""},
    {SCENE(write_far_past_the_end), SIGSEGV, "", ""},
    {SCENE(call_from_kernel), SIGABRT, "cudaFree: called from a kernel (caller)", ""},
    {SCENE(old_stream), SIGABRT, "is no stream any more", ""},
    {SCENE(old_event), SIGABRT, "is no event, or no more", ""},
    {SCENE(event_of_another), SIGABRT, "an event of device 1 recorded in a stream of device 0", ""},
    {SCENE(kernel_reads_host), SIGABRT, "kernel reader accesses 16 bytes at", ""},
    {SCENE(kernel_reads_peer), SIGABRT, "peer access is not enabled", ""},
    {SCENE(pooled_peer), SIGABRT, "its pool gives no access", ""},
    {SCENE(pool_in_use), SIGABRT, "cudaMemPoolDestroy: 1 pieces of the pool are not freed", ""},
    {SCENE(kernel_of_another), SIGABRT, "was launched with device 1 as the current one", ""},
    {SCENE(host_reads_device), SIGABRT, "the host accesses 4 bytes at", ""},
    {SCENE(unknown), SIGABRT, "cudaDeviceSetLimit: not known to the fake", ""},
};

enum { SCENES = sizeof table / sizeof *table };

static void play(int i, int check, int jitter)
{
    char said[1000], settings[100];
    int status, end = table[i].end;

    snprintf(settings, sizeof settings,
             "SP_FAKE_GPUS=2 SP_FAKE_GPU_CHECK=%d SP_FAKE_GPU_JITTER_US=%d", check, jitter);
    status = scene_play(table[i].scene.name, settings, said, sizeof said);
    print_message("%s, %s: %s", table[i].scene.name, settings, *said ? said : "\n");
    if (end > 0)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == end);
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == (end == RACE && check));
    if (end == RACE && !check) /* Nobody is told without being asked. */
        return;
    assert_non_null(strstr(said, end == RACE ? "fake cuda: race at" : ""));
    assert_non_null(strstr(said, table[i].says));
    assert_non_null(strstr(said, table[i].other));
}

static void test_scenes(void **state)
{
    (void)state;
    for (int i = 0; i < SCENES; i++) {
        play(i, 1, 0);
        if (table[i].end <= 0) {
            play(i, 1, 1000);
            play(i, 0, 0);
        }
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
}

/* A setting that is no number ends the run. */
static void test_settings(void **state)
{
    char said[1000];

    (void)state;
    scene_play("no_numbers", "SP_FAKE_GPUS=two", said, sizeof said);
    assert_non_null(strstr(said, "SP_FAKE_GPUS=two is no number from 0 to 16"));
    scene_play("no_numbers", "SP_FAKE_GPU_MEM=1T", said, sizeof said);
    assert_non_null(strstr(said, "SP_FAKE_GPU_MEM=1T is no number"));
}

int main(int argc, char **argv)
{
    struct scene scenes[SCENES + 2] = {SCENE(chain_that_waits), SCENE(chain_that_does_not)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scenes),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_settings),
    };

    for (int i = 0; i < SCENES; i++)
        scenes[i + 2] = table[i].scene;
    scene_main(argc, argv, scenes, SCENES + 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
