/* The fake CUDA runtime: what memory is and how much, and copies in all directions. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include "fake_cuda.h"
#include "runtime.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_accounts(void **state)
{
    struct sp_fake_counts before, c;
    size_t available, total;
    void *a, *b, *too_much;

    (void)state;
    sp_fake_counts(0, &before);
    OK(cudaMemGetInfo(&available, &total));
    assert_int_equal(total, 64 * MIB);
    assert_int_equal(available, total - before.bytes);
    OK(cudaMalloc(&a, 40 * MIB));
    OK(cudaMalloc(&b, 1001));
    OK(cudaMemGetInfo(&available, &total));
    assert_int_equal(available, total - before.bytes - 40 * MIB - 1024);
    assert_int_equal(cudaMalloc(&too_much, 24 * MIB), cudaErrorMemoryAllocation);
    assert_null(too_much);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaSetDevice(1)); /* has its own */
    OK(cudaMalloc(&too_much, 24 * MIB));
    OK(cudaFree(too_much));
    OK(cudaSetDevice(0));
    OK(cudaFree(a));
    OK(cudaMalloc(&a, 24 * MIB));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(NULL));
    sp_fake_counts(0, &c);
    assert_int_equal(c.bytes, before.bytes);
    assert_int_equal(c.allocations, before.allocations + 3);
    assert_int_equal(c.peak_bytes, before.bytes + 40 * MIB + 1024);
    print_message("highest of device 0: %zu bytes\n", c.peak_bytes);
}

/* New memory holds NaN in any type. */
static void test_poison(void **state)
{
    enum { N = 1000 };
    float f[N], *d, *h;
    double doubles[N / 2];
    uint16_t halves[2 * N];

    (void)state;
    OK(cudaMalloc((void **)&d, sizeof f));
    OK(cudaMallocHost((void **)&h, sizeof f));
    OK(cudaMemcpy(f, d, sizeof f, cudaMemcpyDeviceToHost));
    memcpy(doubles, f, sizeof f);
    memcpy(halves, f, sizeof f);
    for (int i = 0; i < N; i++) {
        assert_true(isnan(f[i]) && isnan(h[i]) && isnan(doubles[i / 2]));
        assert_true((halves[i] & 0x7f80) == 0x7f80 && (halves[i] & 0x7f));  /* bf16 */
        assert_true((halves[i] & 0x7c00) == 0x7c00 && (halves[i] & 0x3ff)); /* f16 */
    }
    OK(cudaFree(d));
    OK(cudaFreeHost(h));
}

static void test_pointers(void **state)
{
    struct cudaPointerAttributes at;
    static char mine[8192], other[64];
    char *d, *h;
    void *seen;

    (void)state;
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&d, 100));
    OK(cudaSetDevice(0));
    OK(cudaHostAlloc((void **)&h, 100, cudaHostAllocPortable | cudaHostAllocMapped));

    OK(cudaPointerGetAttributes(&at, d + 99));
    assert_int_equal(at.type, cudaMemoryTypeDevice);
    assert_int_equal(at.device, 1);
    assert_ptr_equal(at.devicePointer, d + 99);
    assert_null(at.hostPointer);
    OK(cudaPointerGetAttributes(&at, h + 5));
    assert_int_equal(at.type, cudaMemoryTypeHost);
    assert_ptr_equal(at.devicePointer, h + 5);
    OK(cudaHostGetDevicePointer(&seen, h, 0));
    assert_ptr_equal(seen, h);
    OK(cudaPointerGetAttributes(&at, mine));
    assert_int_equal(at.type, cudaMemoryTypeUnregistered);
    assert_int_equal(cudaHostGetDevicePointer(&seen, mine, 0), cudaErrorInvalidValue);

    OK(cudaHostRegister(mine, sizeof mine, 0));
    OK(cudaPointerGetAttributes(&at, mine + 4000));
    assert_int_equal(at.type, cudaMemoryTypeHost);
    assert_int_equal(cudaHostRegister(mine, sizeof mine, 0), cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(cudaHostRegister(mine + 8000, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(cudaHostUnregister(mine + 1), cudaErrorHostMemoryNotRegistered);
    assert_int_equal(cudaHostUnregister(other), cudaErrorHostMemoryNotRegistered);
    OK(cudaHostUnregister(mine));
    assert_int_equal(cudaHostUnregister(mine), cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();
    OK(cudaFree(d));
    OK(cudaFreeHost(h));
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void number(unsigned char *p, size_t n, int from)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(from + (int)i * 7);
}

/* Pageable, pinned, on both devices: each from each, as told and as default. */
static void test_directions(void **state)
{
    enum { N = 777, PLACES = 4 };
    unsigned char pageable[N], want[N], *place[PLACES] = {pageable};
    bool device[PLACES] = {false, false, true, true};
    struct sp_fake_counts before[2], after[2];
    cudaStream_t s;

    (void)state;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMallocHost((void **)&place[1], N));
    OK(cudaMalloc((void **)&place[2], N));
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&place[3], N));
    OK(cudaSetDevice(0));
    sp_fake_counts(0, &before[0]);
    sp_fake_counts(1, &before[1]);
    for (int trial = 0; trial < 3 * PLACES * PLACES; trial++) {
        int from = trial % PLACES, to = trial / PLACES % PLACES, how = trial / PLACES / PLACES;
        enum cudaMemcpyKind kind =
            how == 1       ? cudaMemcpyDefault
            : device[to]   ? device[from] ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
            : device[from] ? cudaMemcpyDeviceToHost
                           : cudaMemcpyHostToHost;

        if (from == to)
            continue;
        number(want, N, trial);
        OK(cudaMemcpyAsync(place[from], want, N, cudaMemcpyDefault, s));
        OK(cudaMemsetAsync(place[3 - (from == 3)], 0, N, s)); /* whatever is not read */
        if (how == 2) {
            OK(cudaStreamSynchronize(s));
            OK(cudaMemcpy(place[to], place[from], N, kind));
            OK(cudaDeviceSynchronize());
        } else {
            OK(cudaMemcpyAsync(place[to], place[from], N, kind, s));
            OK(cudaStreamSynchronize(s));
        }
        memset(want, 0, N);
        OK(cudaMemcpyAsync(want, place[to], N, cudaMemcpyDefault, s));
        OK(cudaStreamSynchronize(s));
        for (int i = 0; i < N; i++)
            assert_int_equal(want[i], (unsigned char)(trial + i * 7));
    }
    sp_fake_counts(0, &after[0]);
    sp_fake_counts(1, &after[1]);
    /* Each of 3 ways copies once between the devices in each direction. */
    assert_int_equal(after[0].peer_bytes - before[0].peer_bytes, 3 * N);
    assert_int_equal(after[1].peer - before[1].peer, 3);
    OK(cudaStreamDestroy(s));
    OK(cudaFreeHost(place[1]));
    OK(cudaFree(place[2]));
    OK(cudaFree(place[3]));
}

static void test_boxes(void **state)
{
    enum { W = 5, H = 4, D = 3, PITCH = 16, SLICE = 6 * PITCH };
    unsigned char host[D * SLICE], back[W * H * D], *d, *e;
    struct cudaMemcpy3DParms p = {0};
    struct cudaMemcpy3DPeerParms peer = {0};

    (void)state;
    number(host, sizeof host, 3);
    OK(cudaMalloc((void **)&d, sizeof host));
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&e, sizeof host));
    OK(cudaSetDevice(0));

    /* Rows 16 apart to rows 8 apart and back, densely. */
    OK(cudaMemcpy2D(d, 8, host, PITCH, W, H, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DAsync(back, W, d, 8, W, H, cudaMemcpyDeviceToHost, 0));
    OK(cudaStreamSynchronize(0));
    for (int y = 0; y < H; y++)
        assert_memory_equal(back + y * W, host + y * PITCH, W);

    /* A box out of slices 96 apart, one row and two bytes in; over both devices. */
    p.srcPtr = (struct cudaPitchedPtr){host, PITCH, W, 6};
    p.srcPos = (struct cudaPos){2, 1, 0};
    p.dstPtr = (struct cudaPitchedPtr){d, W, W, H};
    p.extent = (struct cudaExtent){W, H, D};
    p.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&p));
    peer.srcPtr = p.dstPtr;
    peer.srcDevice = 0;
    peer.dstPtr = (struct cudaPitchedPtr){e, PITCH, W, 6};
    peer.dstDevice = 1;
    peer.extent = p.extent;
    OK(cudaMemcpy3DPeer(&peer));
    OK(cudaMemcpy3DPeerAsync(&peer, 0));
    OK(cudaMemset(d, 0, sizeof host));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpyPeer(d, 0, e, 1, sizeof host));
    memset(&p, 0, sizeof p);
    p.srcPtr = (struct cudaPitchedPtr){d, PITCH, W, 6};
    p.dstPtr = (struct cudaPitchedPtr){back, W, W, H};
    p.extent = (struct cudaExtent){W, H, D};
    p.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3DAsync(&p, 0));
    OK(cudaStreamSynchronize(0));
    for (int z = 0; z < D; z++)
        for (int y = 0; y < H; y++)
            assert_memory_equal(back + (z * H + y) * W, host + z * SLICE + (y + 1) * PITCH + 2, W);
    OK(cudaMemset2D(d, PITCH, 9, W, H));
    OK(cudaMemcpy2D(back, W, d, PITCH, W, H, cudaMemcpyDeviceToHost));
    for (int i = 0; i < W * H; i++)
        assert_int_equal(back[i], 9);
    OK(cudaFree(d));
    OK(cudaFree(e));
}

/* An asynchronous copy reads pinned memory when it runs, pageable memory when it is called. */
static void test_asynchronous(void **state)
{
    struct gate gate = {0};
    int *pinned, pageable = 1, *d, got[2];
    cudaStream_t s;

    (void)state;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMallocHost((void **)&pinned, sizeof *pinned));
    OK(cudaMalloc((void **)&d, 2 * sizeof *d));
    *pinned = 1;
    OK(cudaLaunchHostFunc(s, stand, &gate));
    OK(cudaMemcpyAsync(d, pinned, sizeof *d, cudaMemcpyHostToDevice, s));
    OK(cudaMemcpyAsync(d + 1, &pageable, sizeof *d, cudaMemcpyHostToDevice, s));
    *pinned = pageable = 2;
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    gate.open = true;
    OK(cudaMemcpyAsync(got, d, sizeof got, cudaMemcpyDeviceToHost, s)); /* waits: pageable */
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 1);
    OK(cudaStreamQuery(s));
    OK(cudaStreamDestroy(s));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(d));
    cudaGetLastError();
}

static void CUDART_CB late(void *arg)
{
    usleep(20000);
    ++*(int *)arg;
}

/* A plain copy waits for its end with pinned memory, and for earlier items with pageable memory. */
static void test_synchronous(void **state)
{
    int *pinned, *d, pageable = 5, n = 0;

    (void)state;
    OK(cudaMallocHost((void **)&pinned, sizeof *pinned));
    OK(cudaMalloc((void **)&d, sizeof *d));
    OK(cudaMemset(d, 0, sizeof *d));
    OK(cudaLaunchHostFunc(0, late, d));
    OK(cudaMemcpy(pinned, d, sizeof *d, cudaMemcpyDeviceToHost));
    assert_int_equal(*pinned, 1);
    OK(cudaLaunchHostFunc(0, late, &n));
    OK(cudaMemcpy(d, pinned, sizeof *d, cudaMemcpyHostToDevice));
    assert_int_equal(n, 1);
    OK(cudaLaunchHostFunc(0, late, &n));
    OK(cudaMemcpy(d, &pageable, sizeof *d, cudaMemcpyHostToDevice));
    assert_int_equal(n, 2);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(d));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accounts),    cmocka_unit_test(test_poison),
        cmocka_unit_test(test_pointers),    cmocka_unit_test(test_directions),
        cmocka_unit_test(test_boxes),       cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_synchronous),
    };

    fake_devices(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
