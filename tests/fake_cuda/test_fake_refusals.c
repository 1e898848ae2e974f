/* Mistakes that end a program under the fake CUDA runtime, and the line each ends with. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdbool.h>
#include "fake_cuda.h"
#include "scene.h"

#define OK(call) MUST((call) == cudaSuccess)

static char *device_memory(int device, size_t bytes)
{
    void *p = NULL;

    OK(cudaSetDevice(device));
    OK(cudaMalloc(&p, bytes));
    OK(cudaSetDevice(0));
    return p;
}

/* ---- scenes ---------------------------------------------------------------------------------- */

static void wrong_kind(void)
{
    char host[16];

    cudaMemcpy(host, device_memory(0, 16), 16, cudaMemcpyHostToDevice);
}

static void wrong_kind_async(void)
{
    cudaMemcpyAsync(device_memory(0, 16), device_memory(1, 16), 16, cudaMemcpyDeviceToHost, 0);
}

static void past_the_end(void)
{
    char host[32];

    cudaMemcpy(device_memory(0, 16), host, 17, cudaMemcpyHostToDevice);
}

static void past_the_end_rows(void)
{
    char host[32];

    cudaMemcpy2D(host, 8, device_memory(0, 31), 16, 8, 3, cudaMemcpyDeviceToHost);
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
    char *p = device_memory(0, 16);

    OK(cudaFree(p));
    cudaFree(p);
}

static void free_inside(void)
{
    cudaFree(device_memory(0, 16) + 1);
}

static void free_host_as_device(void)
{
    void *p;

    OK(cudaMallocHost(&p, 10));
    cudaFree(p);
}

static char *pooled_memory(size_t bytes)
{
    void *p = NULL;

    OK(cudaMallocAsync(&p, bytes, 0));
    return p;
}

static void free_pooled_as_device(void)
{
    cudaFree(pooled_memory(16));
}

static void free_pooled_twice(void)
{
    char *p = pooled_memory(16);

    OK(cudaFreeAsync(p, 0));
    cudaFreeAsync(p, 0);
}

static void free_device_as_pooled(void)
{
    cudaFreeAsync(device_memory(0, 16), 0);
}

static cudaMemPool_t pool_of(int device)
{
    const struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = device}};
    cudaMemPool_t pool;

    OK(cudaMemPoolCreate(&pool, &props));
    return pool;
}

static void destroy_pool_in_use(void)
{
    cudaMemPool_t pool = pool_of(0);
    void *p;

    OK(cudaMallocFromPoolAsync(&p, 16, pool, 0));
    cudaMemPoolDestroy(pool);
}

static void copy_from_freed(void)
{
    char *p = device_memory(0, 16), host[16];

    OK(cudaFree(p));
    cudaMemcpy(host, p, 16, cudaMemcpyDeviceToHost);
}

static void CUDART_CB touch(void *arg)
{
    *(volatile char *)arg = 1;
}

static void use_after_free(void)
{
    char *p = device_memory(0, 16);

    OK(cudaFree(p));
    OK(cudaLaunchHostFunc(0, touch, p));
    cudaDeviceSynchronize();
}

static void write_past_the_end(void)
{
    char *p = device_memory(0, 1000);

    OK(cudaLaunchHostFunc(0, touch, p + 1000));
    OK(cudaDeviceSynchronize());
    cudaFree(p);
}

static void write_far_past_the_end(void)
{
    OK(cudaLaunchHostFunc(0, touch, device_memory(0, 1000) + 1024));
    cudaDeviceSynchronize();
}

static void CUDART_CB call_cuda(void *arg)
{
    sp_fake_kernel_name("caller");
    cudaFree(arg);
}

static void call_from_kernel(void)
{
    OK(cudaLaunchHostFunc(0, call_cuda, device_memory(0, 10)));
    cudaDeviceSynchronize();
}

static void old_stream(void)
{
    cudaStream_t s;

    OK(cudaStreamCreate(&s));
    OK(cudaStreamDestroy(s));
    cudaStreamSynchronize(s);
}

static void old_event(void)
{
    cudaEvent_t e;

    OK(cudaEventCreate(&e));
    OK(cudaEventDestroy(e));
    cudaEventQuery(e);
}

static void event_of_another(void)
{
    cudaStream_t s;
    cudaEvent_t e;

    OK(cudaStreamCreate(&s));
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&e));
    cudaEventRecord(e, s);
}

static void CUDART_CB access_it(void *arg)
{
    sp_fake_kernel_name("reader");
    sp_fake_kernel_access(arg, 16, 0);
}

static void kernel_reads_host(void)
{
    static char host[16];

    OK(cudaLaunchHostFunc(0, access_it, host));
    cudaDeviceSynchronize();
}

static void kernel_reads_peer(void)
{
    OK(cudaLaunchHostFunc(0, access_it, device_memory(1, 16)));
    cudaDeviceSynchronize();
}

static void kernel_reads_enabled_peer(void)
{
    OK(cudaDeviceEnablePeerAccess(1, 0));
    kernel_reads_peer();
}

/* Device 0 reads memory of a pool of device 1, with or without permission. */
static void read_pooled_peer(bool allowed)
{
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    cudaStream_t s;
    void *p;

    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&s));
    pool = pool_of(1);
    if (allowed)
        OK(cudaMemPoolSetAccess(pool, &access, 1));
    OK(cudaMallocFromPoolAsync(&p, 16, pool, s));
    OK(cudaSetDevice(0));
    OK(cudaLaunchHostFunc(0, access_it, p));
    cudaDeviceSynchronize();
}

static void pooled_peer(void)
{
    OK(cudaDeviceEnablePeerAccess(1, 0)); /* covers only cudaMalloc */
    read_pooled_peer(false);
}

static void pooled_enabled_peer(void)
{
    read_pooled_peer(true);
}

static void host_reads_device(void)
{
    sp_fake_kernel_access(device_memory(1, 16), 4, 0);
}

static void kernel_of_another(void)
{
    char *p = device_memory(0, 16);
    cudaStream_t s;

    OK(cudaStreamCreate(&s));
    OK(cudaSetDevice(1));
    OK(cudaLaunchHostFunc(s, access_it, p));
    OK(cudaStreamSynchronize(s));
}

static void no_device(void)
{
    int n = -1;

    MUST(cudaGetDeviceCount(&n) == cudaErrorNoDevice);
    MUST(n == 0);
    MUST(cudaSetDevice(0) == cudaErrorInvalidDevice);
}

/* ---- what comes of them ---------------------------------------------------------------------- */

#define SCENE(f)                                                                                   \
    {                                                                                              \
#f, f                                                                                      \
    }

static const struct scene scenes[] = {
    SCENE(wrong_kind),
    SCENE(wrong_kind_async),
    SCENE(past_the_end),
    SCENE(past_the_end_rows),
    SCENE(wrong_peer),
    SCENE(fill_host),
    SCENE(free_twice),
    SCENE(free_inside),
    SCENE(free_host_as_device),
    SCENE(free_pooled_as_device),
    SCENE(free_pooled_twice),
    SCENE(free_device_as_pooled),
    SCENE(destroy_pool_in_use),
    SCENE(pooled_peer),
    SCENE(pooled_enabled_peer),
    SCENE(copy_from_freed),
    SCENE(use_after_free),
    SCENE(write_past_the_end),
    SCENE(write_far_past_the_end),
    SCENE(call_from_kernel),
    SCENE(old_stream),
    SCENE(old_event),
    SCENE(event_of_another),
    SCENE(kernel_reads_host),
    SCENE(kernel_reads_peer),
    SCENE(kernel_reads_enabled_peer),
    SCENE(kernel_of_another),
    SCENE(host_reads_device),
    SCENE(no_device),
};

static const struct {
    const char *scene;
    int signal; /* 0: it ends well */
    const char *says;
} expected[] = {
    {"wrong_kind", SIGABRT, "cudaMemcpy: invalid argument: copy host to device, but to"},
    {"wrong_kind_async", SIGABRT, "cudaMemcpyAsync: invalid argument: copy device to host, but to"},
    {"past_the_end", SIGABRT, "(device 0, byte 0 of 16) are not all in one piece of memory"},
    {"past_the_end_rows", SIGABRT, "cudaMemcpy2D: 40 bytes at"},
    {"wrong_peer", SIGABRT, "(device 1, byte 0 of 16) is not on device 0"},
    {"fill_host", SIGABRT, "cudaMemset: invalid argument: 16 bytes at"},
    {"free_twice", SIGABRT, "(memory that was freed) was not allocated"},
    {"free_inside", SIGABRT, "(device 0, byte 1 of 16) was not allocated"},
    {"free_host_as_device", SIGABRT, "(pinned host memory, byte 0 of 10) was not allocated"},
    {"free_pooled_as_device", SIGABRT, "is of a pool: cudaFreeAsync frees it"},
    {"free_pooled_twice", SIGABRT, "is of no pool, or is freed already"},
    {"free_device_as_pooled", SIGABRT, "is of no pool, or is freed already"},
    {"destroy_pool_in_use", SIGABRT, "1 pieces of the pool are not freed"},
    {"pooled_peer", SIGABRT, "its pool gives no access"},
    {"pooled_enabled_peer", 0, ""},
    {"copy_from_freed", SIGABRT, "(memory that was freed)"},
    {"use_after_free", SIGSEGV, ""},
    {"write_past_the_end", SIGABRT, "cudaFree: the 1000 bytes at"},
    {"write_far_past_the_end", SIGSEGV, ""},
    {"call_from_kernel", SIGABRT, "cudaFree: called from a kernel or a callback (caller)"},
    {"old_stream", SIGABRT, "is no stream any more"},
    {"old_event", SIGABRT, "is no event, or no more"},
    {"event_of_another", SIGABRT, "an event of device 1 recorded in a stream of device 0"},
    {"kernel_reads_host", SIGABRT, "kernel reader accesses 16 bytes at"},
    {"kernel_reads_peer", SIGABRT, "peer access is not enabled"},
    {"kernel_reads_enabled_peer", 0, ""},
    {"kernel_of_another", SIGABRT,
     "kernel reader of device 0 was launched with device 1 as the current one"},
    {"host_reads_device", SIGABRT, "the host accesses 4 bytes at"},
};

static void test_refusals(void **state)
{
    char said[1000];

    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int status = scene_play(expected[i].scene, "SP_FAKE_GPUS=2", said, sizeof said);

        print_message("%s: %s", expected[i].scene, *said ? said : "\n");
        if (expected[i].signal)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == expected[i].signal);
        else
            assert_int_equal(status, 0);
        assert_non_null(strstr(said, expected[i].says));
    }
}

static void test_no_device(void **state)
{
    char said[1000];

    (void)state;
    assert_int_equal(scene_play("no_device", "SP_FAKE_GPUS=0", said, sizeof said), 0);
}

static void test_settings(void **state)
{
    char said[1000];

    (void)state;
    scene_play("no_device", "SP_FAKE_GPUS=two", said, sizeof said);
    assert_non_null(strstr(said, "SP_FAKE_GPUS=two is no number from 0 to 16"));
    scene_play("no_device", "SP_FAKE_GPU_MEM=1T", said, sizeof said);
    assert_non_null(strstr(said, "SP_FAKE_GPU_MEM=1T is no number"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_settings),
    };

    scene_main(argc, argv, scenes, sizeof scenes / sizeof *scenes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
