/* The fake CUDA runtime: devices, and what is in order of what. Memory: test_fake_memory.c. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include "fake_cuda.h"
#include "runtime.h"

/* y(n) += a */
struct add {
    float *y, a;
    int n;
};

static void CUDART_CB add(void *arg)
{
    struct add *k = arg;

    sp_fake_kernel_name("add");
    sp_fake_kernel_access(k->y, sizeof *k->y * (size_t)k->n, 1);
    for (int i = 0; i < k->n; i++)
        k->y[i] += k->a;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void *another_thread(void *arg)
{
    int device = -1;

    cudaGetDevice(&device);
    cudaSetDevice(7);
    *(int *)arg = device * 100 + (int)cudaGetLastError();
    return NULL;
}

static void test_devices(void **state)
{
    struct cudaDeviceProp p;
    int n = 0, value = -1, said = -1;
    pthread_t thread;

    (void)state;
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, 2);
    OK(cudaGetDeviceProperties(&p, 1));
    assert_string_equal(p.name, "fake GPU");
    assert_int_equal(p.totalGlobalMem, 64 * MIB);
    assert_int_equal(p.major, 9);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, 1));
    assert_int_equal(value, cudaComputeModeDefault);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(value, p.multiProcessorCount);

    /* The device and the last error are the thread's own. */
    assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
    OK(cudaSetDevice(1));
    pthread_create(&thread, NULL, another_thread, &said);
    pthread_join(thread, NULL);
    assert_int_equal(said, cudaErrorInvalidDevice);
    OK(cudaGetDevice(&value));
    assert_int_equal(value, 1);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_string_equal(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    OK(cudaSetDevice(0));
}

static void test_peers(void **state)
{
    int can = -1;

    (void)state;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    assert_int_equal(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    OK(cudaDeviceEnablePeerAccess(1, 0));
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
    OK(cudaDeviceDisablePeerAccess(1));
}

/* ---- streams and events ---------------------------------------------------------------------- */

struct mark {
    int *list, *n, what;
};

static void CUDART_CB mark(void *arg)
{
    struct mark *m = arg;

    m->list[(*m->n)++] = m->what;
}

static void test_in_order(void **state)
{
    enum { N = 500 };
    static struct mark marks[N];
    int list[N], n = 0, least = 1, greatest = 1, priority = 0, device = -1;
    cudaStream_t s;

    (void)state;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    assert_true(least == 0 && greatest < 0);
    OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest));
    OK(cudaStreamGetPriority(s, &priority));
    assert_int_equal(priority, greatest);
    OK(cudaStreamGetDevice(s, &device));
    assert_int_equal(device, 0);
    for (int i = 0; i < N; i++) {
        marks[i] = (struct mark){list, &n, i};
        OK(cudaLaunchHostFunc(s, mark, &marks[i]));
    }
    OK(cudaStreamSynchronize(s));
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(list[i], i);
    OK(cudaStreamDestroy(s));
}

static void CUDART_CB nothing(void *arg)
{
    (void)arg;
}

/* Handles are used again, and what a stream takes is given back. */
static void test_many_streams(void **state)
{
    cudaStream_t s;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        OK(cudaStreamCreate(&s));
        if (i % 5 == 0) {
            OK(cudaLaunchHostFunc(s, nothing, NULL));
            OK(cudaStreamSynchronize(s));
        }
        OK(cudaStreamDestroy(s));
    }
}

static void test_events(void **state)
{
    struct gate gate = {0}, second = {0};
    cudaStream_t a, b;
    cudaEvent_t start, end, plain;
    float ms = -1, *d, h[4] = {0};
    struct add plus = {NULL, 1, 4}, again = {NULL, 10, 4};

    (void)state;
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    OK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&d, sizeof h));
    plus.y = again.y = d;

    OK(cudaEventQuery(plain)); /* never recorded */
    OK(cudaEventSynchronize(plain));
    OK(cudaStreamWaitEvent(b, plain, 0));
    assert_int_equal(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);

    OK(cudaEventRecord(start, a));
    OK(cudaMemsetAsync(d, 0, sizeof h, a));
    OK(cudaLaunchHostFunc(a, stand, &gate));
    OK(cudaLaunchHostFunc(a, add, &plus));
    OK(cudaEventRecord(plain, a));
    OK(cudaEventRecord(end, a));
    OK(cudaStreamWaitEvent(b, plain, 0));
    /* The wait is for the record that was, not for this one. */
    OK(cudaLaunchHostFunc(a, stand, &second));
    OK(cudaEventRecord(plain, a));
    OK(cudaLaunchHostFunc(b, add, &again));
    assert_int_equal(cudaEventQuery(end), cudaErrorNotReady);
    assert_int_equal(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(b), cudaErrorNotReady);
    gate.open = true;
    OK(cudaStreamSynchronize(b));
    OK(cudaEventSynchronize(end));
    assert_int_equal(cudaEventQuery(plain), cudaErrorNotReady);
    OK(cudaEventElapsedTime(&ms, start, end));
    assert_true(ms >= 0);
    assert_int_equal(cudaEventElapsedTime(&ms, start, plain), cudaErrorInvalidResourceHandle);
    second.open = true;
    OK(cudaDeviceSynchronize());
    OK(cudaEventQuery(plain));
    OK(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    assert_true(h[0] == 11 && h[3] == 11);

    /* Destroyed with work behind them: it is still done. */
    OK(cudaLaunchHostFunc(a, add, &plus));
    OK(cudaEventRecord(end, a));
    OK(cudaStreamWaitEvent(b, end, 0));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamSynchronize(b));
    OK(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    assert_true(h[0] == 12 && h[3] == 12);
    OK(cudaStreamDestroy(b));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(plain));
    OK(cudaFree(d));
    cudaGetLastError();
}

/* Between ordinary streams and the default one there is order, the non-blocking one is outside. */
static void test_default_stream(void **state)
{
    struct gate gate = {0}, free_gate = {0};
    int list[8], n = 0;
    struct mark marks[] = {{list, &n, 0}, {list, &n, 1}, {list, &n, 2}};
    cudaStream_t ordinary, outside;

    (void)state;
    OK(cudaStreamCreate(&ordinary));
    OK(cudaStreamCreateWithFlags(&outside, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(outside, stand, &free_gate));
    OK(cudaLaunchHostFunc(ordinary, stand, &gate));
    OK(cudaLaunchHostFunc(ordinary, mark, &marks[0]));
    OK(cudaLaunchHostFunc(0, mark, &marks[1]));
    OK(cudaLaunchHostFunc(ordinary, mark, &marks[2]));
    assert_int_equal(cudaStreamQuery(0), cudaErrorNotReady);
    gate.open = true;
    OK(cudaStreamSynchronize(0));
    OK(cudaStreamQuery(0));
    assert_int_equal(n, 3);
    for (int i = 0; i < n; i++)
        assert_int_equal(list[i], i);
    assert_int_equal(cudaStreamQuery(outside), cudaErrorNotReady);
    free_gate.open = true;
    OK(cudaStreamSynchronize(outside));
    OK(cudaStreamDestroy(ordinary));
    OK(cudaStreamDestroy(outside));
    cudaGetLastError();
}

static void CUDART_CB count(cudaStream_t stream, cudaError_t status, void *arg)
{
    *(int *)arg += stream && status == cudaSuccess;
}

static void test_callback(void **state)
{
    cudaStream_t s;
    int n = 0;

    (void)state;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamAddCallback(s, count, &n, 0));
    OK(cudaStreamSynchronize(s));
    assert_int_equal(n, 1);
    OK(cudaStreamDestroy(s));
}

/* Streams and memory of a device go with it; the other device keeps its own. */
static void test_reset(void **state)
{
    struct sp_fake_counts c;
    cudaStream_t s;
    void *d, *kept;
    int n = 0;

    (void)state;
    OK(cudaMalloc(&kept, 1000));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&d, 1000));
    OK(cudaStreamCreate(&s));
    OK(cudaStreamAddCallback(s, count, &n, 0));
    OK(cudaDeviceReset());
    assert_int_equal(n, 1);
    sp_fake_counts(1, &c);
    assert_int_equal(c.bytes, 0);
    OK(cudaMalloc(&d, 1000));
    OK(cudaFree(d));
    OK(cudaSetDevice(0));
    OK(cudaFree(kept));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),  cmocka_unit_test(test_peers),
        cmocka_unit_test(test_in_order), cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_events),   cmocka_unit_test(test_default_stream),
        cmocka_unit_test(test_callback), cmocka_unit_test(test_reset),
    };

    fake_devices(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
