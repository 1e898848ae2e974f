/* The kernels of defects.h. */
#include "defects.h"
#include "emulated.h"
#include "kernels/cuda/attention/mma.h"

static __global__ void defective(enum defect defect, float *out)
{
    float *shared = sp_shared<float>(), x = (float)threadIdx.x;
    unsigned lane = threadIdx.x % 32;

    switch (defect) {
    case BARRIER_OF_SOME:
        if (threadIdx.x < 32)
            __syncthreads();
        break;
    case BARRIERS_APART:
        if (threadIdx.x < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case BARRIER_OR_SHUFFLE:
        if (lane == 7)
            __syncthreads();
        x = __shfl_xor_sync(0xffffffffu, x, 1);
        __syncthreads();
        break;
    case LANE_AWAY:
        if (lane == 31)
            return;
        x = __shfl_down_sync(0xffffffffu, x, 1);
        break;
    case LANE_OUTSIDE:
        x = __shfl_sync(0x0000ffffu, x, 0);
        break;
    case SHARED_BEYOND:
        shared[threadIdx.x + 1] = x;
        break;
    case COPY_FORGOTTEN:
        sp_copy_async((bf16 *)shared, (const bf16 *)out, false);
        break;
    default:
        x = __shfl_xor_sync(0xffffffffu, x, 1);
        shared[threadIdx.x] = x;
        __syncthreads();
        x = shared[63 - threadIdx.x];
    }
    out[threadIdx.x] = x;
}

static struct sp_backend backend(void)
{
    return *sp_emulated_backend(SP_F32);
}

void sp_defect_run(enum defect defect)
{
    alignas(16) float out[64];
    struct sp_backend k = backend();

    sp_launch(&k, "defective", defective, 1, 64, 64 * sizeof(float), defect, out);
    sp_emulated_wait();
}

/* Each thread reads what its neighbour wrote. */
static __global__ void neighbours(bool barrier, float *out)
{
    float *shared = sp_shared<float>();

    shared[threadIdx.x] = (float)threadIdx.x;
    if (barrier)
        __syncthreads();
    out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

bool sp_defect_race(unsigned order, bool barrier)
{
    float out[64];
    struct sp_backend k = backend();
    bool right = true;

    sp_emulated_order(order);
    sp_launch(&k, "neighbours", neighbours, 1, 64, 64 * sizeof(float), barrier, out);
    sp_emulated_wait();
    sp_emulated_order(0);
    for (unsigned t = 0; t < 64; t++)
        right = right && out[t] == (float)((t + 1) % 64);
    return right;
}

static __global__ void copier(bool wait, const bf16 *from, bf16 *out)
{
    bf16 *shared = sp_shared<bf16>() + threadIdx.x * 8;

    sp_copy_async(shared, from + threadIdx.x * 8, true);
    sp_copy_commit();
    if (wait)
        sp_copy_wait<0>();
    out[threadIdx.x] = shared[3];
    sp_copy_wait<0>();
}

bool sp_defect_copy(bool wait)
{
    alignas(16) bf16 from[32 * 8], out[32];
    struct sp_backend k = backend();
    bool right = true;

    for (unsigned i = 0; i < 32 * 8; i++)
        from[i].bits = (uint16_t)i;
    sp_launch(&k, "copier", copier, 1, 32, sizeof from, wait, from, out);
    sp_emulated_wait();
    for (unsigned t = 0; t < 32; t++)
        right = right && out[t].bits == t * 8 + 3;
    return right;
}

static __global__ void reader(float *out)
{
    out[threadIdx.x] = sp_shared<float>()[threadIdx.x];
}

bool sp_defect_uninitialised(void)
{
    float out[32];
    struct sp_backend k = backend();

    sp_defect_race(0, true); /* the block before left numbers */
    sp_launch(&k, "reader", reader, 1, 32, sizeof out, out);
    sp_emulated_wait();
    return !isnan(out[0]) && !isnan(out[31]);
}

static __global__ void follower(const int *host, int *out)
{
    out[threadIdx.x] = *host;
}

bool sp_defect_host_memory(void)
{
    int out[32], *host = new int(5);
    struct sp_backend k = backend();
    bool right;

    sp_launch(&k, "follower", follower, 1, 32, 0, host, out);
    *host = 6; /* the caller goes on */
    sp_emulated_wait();
    right = out[0] == 5;
    delete host;
    return right;
}

static __global__ void idle(int)
{
}

bool sp_defect_launch(unsigned grid_y, unsigned threads, unsigned shared, bool ask)
{
    cudaLaunchConfig_t config = {};
    bool accepted = true;

    config.gridDim = dim3(1, grid_y);
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    if (ask)
        accepted =
            cudaFuncSetAttribute((const void *)idle, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)shared) == cudaSuccess;
    accepted = accepted && cudaLaunchKernelEx(&config, idle, 0) == cudaSuccess;
    sp_emulated_wait();
    return accepted;
}
