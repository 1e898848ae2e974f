/* The pool of a GPU's buffers (src/kernels/cuda/device/pool.h) on the fake CUDA runtime. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "fake_cudart.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/pool.h"
#include "scene.h"
#include <sched.h>
#include <stdatomic.h>

enum { MIB = 1 << 20 };

#define OK(call) assert_int_equal(call, cudaSuccess)

/* A kernel that holds its stream until the test lets it go. */
struct gate {
    atomic_bool open;
};

static void CUDART_CB stand(void *arg)
{
    struct gate *g = arg;

    while (!g->open)
        sched_yield();
}

static uint64_t used; /* of a buffer that was taken */

static struct sp_cuda_pool *pool_of(int device)
{
    static const int peers[] = {0, 1};
    struct sp_cuda_pool *pool = NULL;

    assert_true(sp_cuda_pool_supported(device));
    assert_int_equal(sp_cuda_pool_create(device, peers, 2, NULL, &pool), 0);
    return pool;
}

static struct sp_fake_counts counts(int device)
{
    struct sp_fake_counts c;

    sp_fake_counts(device, &c);
    return c;
}

enum { IDLE = 16 * MIB };

/* A buffer is used again for its size, the latest first, and for no other. */
static void test_reuse(void **state)
{
    struct sp_cuda_pool *pool = pool_of(0);
    size_t before = counts(0).bytes, made = counts(0).pooled;
    void *a = sp_cuda_pool_take(pool, MIB, IDLE, &used),
         *b = sp_cuda_pool_take(pool, MIB, IDLE, &used), *c;

    (void)state;
    assert_true(a && b && a != b);
    sp_cuda_pool_give(pool, a, MIB, 0);
    sp_cuda_pool_give(pool, b, MIB, 0);
    c = sp_cuda_pool_take(pool, MIB / 2, IDLE, &used);
    assert_true(c && c != a && c != b);
    assert_ptr_equal(sp_cuda_pool_take(pool, MIB, IDLE, &used), b);
    assert_ptr_equal(sp_cuda_pool_take(pool, MIB, IDLE, &used), a);
    assert_int_equal(counts(0).pooled, made + 3);
    sp_cuda_pool_give(pool, c, MIB / 2, 0);
    sp_cuda_pool_give(pool, a, MIB, 0);
    sp_cuda_pool_give(pool, b, MIB, 0);
    sp_cuda_pool_destroy(pool);
    assert_int_equal(counts(0).bytes, before);
}

/* Idle buffers go, the oldest first, where more would be than may. */
static void test_idle(void **state)
{
    struct sp_cuda_pool *pool = pool_of(1);
    size_t before = counts(1).bytes;
    void *a = sp_cuda_pool_take(pool, 3 * MIB, IDLE, &used),
         *b = sp_cuda_pool_take(pool, 4 * MIB, IDLE, &used), *c;

    (void)state;
    sp_cuda_pool_give(pool, a, 3 * MIB, 0);
    sp_cuda_pool_give(pool, b, 4 * MIB, 0);
    c = sp_cuda_pool_take(pool, MIB, 6 * MIB, &used);
    OK(cudaDeviceSynchronize());
    assert_int_equal(counts(1).bytes - before, 5 * MIB);
    assert_ptr_equal(sp_cuda_pool_take(pool, 4 * MIB, 0, &used), b);
    sp_cuda_pool_give(pool, b, 4 * MIB, 0);
    assert_non_null(a = sp_cuda_pool_take(pool, 2 * MIB, 0, &used));
    OK(cudaDeviceSynchronize());
    assert_int_equal(counts(1).bytes - before, 3 * MIB);
    sp_cuda_pool_give(pool, a, 2 * MIB, 0);
    sp_cuda_pool_give(pool, c, MIB, 0);
    sp_cuda_pool_destroy(pool);
    assert_int_equal(counts(1).bytes, before);
    OK(cudaSetDevice(0));
}

/* A workspace that the device has no room for takes that of idle buffers, as no more of them are needed. */
static void test_workspace(void **state)
{
    struct sp_cuda_pool *pool = pool_of(0);
    struct sp_cuda cuda = {.device = 0};
    struct sp_backend k = {.cuda = &cuda};
    void *a = sp_cuda_pool_take(pool, 50 * MIB, 0, &used);

    (void)state;
    assert_non_null(a);
    OK(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking));
    sp_cuda_pool_give(pool, a, 50 * MIB, 0);
    assert_non_null(sp_cuda_workspace(&k, 20 * MIB));
    assert_int_equal(cuda.workspace_bytes, 20 * MIB);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    OK(cudaFreeAsync(cuda.workspace, cuda.stream));
    OK(cudaStreamSynchronize(cuda.stream));
    OK(cudaStreamDestroy(cuda.stream));
    sp_cuda_pool_destroy(pool);
}

/* A device of 64 MiB that is full: what is idle makes room, and without it there is none; no error stays behind. */
static void test_full(void **state)
{
    struct sp_cuda_pool *pool = pool_of(0);
    size_t before = counts(0).bytes;
    void *a = sp_cuda_pool_take(pool, 40 * MIB, SIZE_MAX, &used), *b;

    (void)state;
    assert_non_null(a);
    assert_null(sp_cuda_pool_take(pool, 30 * MIB, SIZE_MAX, &used));
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    sp_cuda_pool_give(pool, a, 40 * MIB, 0);
    b = sp_cuda_pool_take(pool, 30 * MIB, SIZE_MAX, &used);
    assert_non_null(b);
    assert_int_equal(counts(0).bytes - before, 30 * MIB);
    sp_cuda_pool_give(pool, b, 30 * MIB, 0);
    sp_cuda_pool_destroy(pool);
    assert_int_equal(counts(0).bytes, before);
}

/* Taking and giving back wait for nothing that the device computes. */
static void test_waits_for_nothing(void **state)
{
    struct sp_cuda_pool *pool = pool_of(0);
    struct gate gate = {0};
    cudaStream_t stream;

    (void)state;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaLaunchHostFunc(stream, stand, &gate));
    for (size_t i = 1; i <= 8; i++) { /* each of another size, in the room of those before */
        void *a = sp_cuda_pool_take(pool, i * MIB / 2, MIB, &used);

        assert_non_null(a);
        sp_cuda_pool_give(pool, a, i * MIB / 2, 0);
    }
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    cudaGetLastError();
    gate.open = true;
    OK(cudaStreamDestroy(stream));
    sp_cuda_pool_destroy(pool);
}

/* In a process of its own: a driver without pools. */
static void without(const char *name)
{
    (void)name;
    MUST(!sp_cuda_pool_supported(0));
}

static void test_without(void **state)
{
    char said[200];

    (void)state;
    assert_int_equal(scene_play("without", "SP_FAKE_GPU_POOLS=0", said, sizeof said), 0);
    assert_string_equal(said, "");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_waits_for_nothing),
        cmocka_unit_test(test_without),
    };

    scene_main(argc, argv, without);
    setenv("SP_FAKE_GPUS", "2", 1);
    setenv("SP_FAKE_GPU_MEM", "64M", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
