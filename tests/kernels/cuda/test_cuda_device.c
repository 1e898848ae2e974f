/*
 * A device's refusals and their messages, the workspace, and how the tables are composed, on a CUDA
 * runtime whose answers are chosen here.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "../reference.h"
#include "fake_cudart.h"
#include "kernels/cuda/device/device.h"
#include "said.h"
#include "sp_error.h"

static int before(void **state)
{
    (void)state;
    sp_fake_cudart_reset();
    unsetenv("CUDA_VISIBLE_DEVICES");
    return 0;
}

/* ---- sp_cuda_check ---- */

static int check(void *arg)
{
    return -sp_cuda_check(*(int *)arg);
}

static void assert_refusal(int device, int code, const char *says)
{
    char text[1024];

    assert_int_equal(said_by(check, &device, text, sizeof text), code);
    printf("    %s", text);
    assert_true(is_one_line(text));
    assert_non_null(strstr(text, says));
}

TEST(check)
{
    assert_int_equal(sp_cuda_check(0), 0);

    sp_fake_cudart.driver = 0;
    sp_fake_cudart.count_error = cudaErrorInsufficientDriver;
    assert_refusal(0, ENODEV, "this machine has no driver");
    sp_fake_cudart.driver = 12040;
    assert_refusal(0, ENOTSUP,
                   "the driver knows CUDA up to 12.4, but starpipe was built with 13.0");
    sp_fake_cudart.count_error = cudaErrorNoDevice;
    assert_refusal(0, ENODEV, "the driver sees no device");
    sp_fake_cudart.count_error = cudaErrorECCUncorrectable;
    assert_refusal(0, ENODEV, "devices cannot be listed: error 214");

    before(NULL);
    sp_fake_cudart.devices = 0;
    assert_refusal(0, ENODEV, "the driver sees no device");
    sp_fake_cudart.devices = 1;
    assert_refusal(1, ENODEV, "no device 1: there is 1, numbered from 0\n");
    assert_refusal(-1, ENODEV, "no device -1: there is 1");
    sp_fake_cudart.devices = 2;
    setenv("CUDA_VISIBLE_DEVICES", "3,5", 1);
    assert_refusal(2, ENODEV,
                   "no device 2: there are 2, numbered from 0, CUDA_VISIBLE_DEVICES=3,5");

    sp_fake_cudart.major = 7;
    sp_fake_cudart.minor = 5;
    assert_refusal(1, ENOTSUP, "device 1 (Fake 1) has compute capability 7.5, starpipe needs 8.0");
    sp_fake_cudart.major = 8;
    sp_fake_cudart.minor = 0;
    assert_int_equal(sp_cuda_check(1), 0);
}

/* ---- errors that end the run ---- */

static int must(void *arg)
{
    sp_cuda_must(*(cudaError_t *)arg, "softmax");
    return 0;
}

/* A rank that holds back its first line still prints its last. */
static int fatal_while_held(void *arg)
{
    (void)arg;
    sp_error_hold(3);
    sp_cuda_fatal("cuda: %s", "the end");
}

static void assert_end(int (*f)(void *arg), void *arg, const char *says)
{
    char text[1024];

    assert_int_equal(said_by(f, arg, text, sizeof text), 1);
    printf("    %s", text);
    assert_true(is_one_line(text));
    assert_non_null(strstr(text, says));
}

TEST(must)
{
    cudaError_t err = cudaSuccess;
    char text[64];

    assert_int_equal(said_by(must, &err, text, sizeof text), 0);
    assert_string_equal(text, "");
    err = cudaErrorMemoryAllocation;
    assert_end(must, &err, "softmax: out of memory: 1024.0 of 1024.0 MiB are free: lower");
    err = cudaErrorIllegalAddress;
    assert_end(must, &err, "softmax: error 700: a kernel before this one failed: SP_SYNC=1");
    err = cudaErrorNoKernelImageForDevice;
    assert_end(must, &err, "softmax: error 209: starpipe was built for other architectures");
    err = cudaErrorInvalidValue;
    assert_end(must, &err, "cuda: softmax: error 1\n");
    assert_end(fatal_while_held, NULL, "starpipe: cuda: the end\n");
}

/* ---- workspace ---- */

static struct sp_cuda worker;
static const struct sp_backend backend = {.cuda = &worker};

static int too_much(void *arg)
{
    return sp_cuda_workspace(&backend, *(size_t *)arg) ? 0 : 2;
}

static int grow_after_failure(void *arg)
{
    (void)arg;
    sp_fake_cudart.stream_error = cudaErrorIllegalAddress;
    return sp_cuda_workspace(&backend, 1 << 20) ? 0 : 2;
}

TEST(workspace)
{
    const size_t MIB = 1 << 20;
    size_t all = (size_t)1 << 30, more = all + 1;
    void *first, *grown;

    assert_end(grow_after_failure, NULL, "before the workspace grows: error 700");
    first = sp_cuda_workspace(&backend, 1000);
    assert_int_equal((uintptr_t)first % 256, 0);
    assert_int_equal(sp_cuda_held_bytes(), 2 * MIB);
    assert_ptr_equal(sp_cuda_workspace(&backend, 2 * MIB), first);
    assert_int_equal(sp_fake_cudart.waits, 1);

    grown = sp_cuda_workspace(&backend, 16 * MIB);
    memset(grown, 1, 16 * MIB);
    assert_int_equal(sp_fake_cudart.waits, 2);
    assert_int_equal(sp_fake_cudart.device_waits, 0); /* messages may be on their way */
    assert_int_equal(sp_fake_cudart.live, 1);
    assert_int_equal(sp_cuda_held_bytes(), 18 * MIB); /* an eighth more */
    assert_int_equal(sp_fake_cudart.used_bytes, 18 * MIB);

    assert_end(too_much, &more, "workspace: out of memory for 1024.0 MiB: 1024.0 of 1024.0 MiB");
    /* Without room for an eighth more, the workspace is exactly what is needed. */
    assert_non_null(sp_cuda_workspace(&backend, all));
    assert_int_equal(sp_cuda_held_bytes(), (int64_t)all);
    sp_cuda_release(&worker);
    assert_int_equal(sp_cuda_held_bytes(), 0);
    assert_int_equal(sp_fake_cudart.live, 0);
    assert_null(worker.workspace);
}

/* ---- sp_cuda_create ---- */

static char filled[8 * SP_DTYPES + 1]; /* a letter for each part of each table */
static int gemm_error, gemms;

static void fill_part(struct sp_backend *k, char part)
{
    size_t n = strlen(filled);

    assert_string_equal(k->name, "cuda");
    assert_non_null(k->cuda->gemm);
    filled[n] = part;
    filled[n + 1] = '\0';
}

void sp_cuda_gemm_fill(struct sp_backend *k)
{
    if (k->dtype == SP_F32)
        filled[0] = '\0';
    fill_part(k, 'g');
}

void sp_cuda_norm_fill(struct sp_backend *k)
{
    fill_part(k, 'n');
}

void sp_cuda_attention_fill(struct sp_backend *k)
{
    fill_part(k, 'a');
}

void sp_cuda_mlp_fill(struct sp_backend *k)
{
    fill_part(k, 'm');
}

void sp_cuda_token_fill(struct sp_backend *k)
{
    fill_part(k, 't');
}

void sp_cuda_loss_fill(struct sp_backend *k)
{
    fill_part(k, 'l');
}

void sp_cuda_update_fill(struct sp_backend *k)
{
    fill_part(k, 'u');
}

void sp_cuda_memory_fill(struct sp_backend *k)
{
    fill_part(k, '.');
}

struct sp_cuda_gemm *sp_cuda_gemm_create(struct sp_cuda *cuda)
{
    errno = gemm_error;
    gemms += !gemm_error;
    return gemm_error ? NULL : (struct sp_cuda_gemm *)(void *)cuda;
}

void sp_cuda_gemm_free(struct sp_cuda_gemm *gemm)
{
    assert_non_null(gemm);
    gemms--;
}

static const size_t gemm_bytes = (size_t)65 << 20;

size_t sp_cuda_gemm_bytes(int device)
{
    assert_int_equal(device, 0);
    return gemm_bytes;
}

#ifdef HAVE_CUDNN_FRONTEND
size_t sp_cuda_attention_bytes(int device, const struct sp_attention *at, size_t device_bytes)
{
    (void)device, (void)at, (void)device_bytes;
    return 0;
}

bool sp_cuda_attention_fused(struct sp_cuda *cuda, struct sp_backend *k)
{
    assert_ptr_equal(k, &cuda->backends[SP_BF16]);
    return false;
}

void sp_cuda_attention_free(struct sp_cuda_attention *attention)
{
    assert_null(attention);
}
#endif

static int create(void *arg)
{
    struct sp_cuda *cuda;

    (void)arg;
    return -sp_cuda_create(0, NULL, &cuda);
}

TEST(create)
{
    struct sp_cuda *cuda = NULL;
    char text[1024];

    assert_int_equal(sp_cuda_create(0, NULL, &cuda), 0);
    assert_string_equal(filled, "gnamtlu.gnamtlu.gnamtlu.");
    for (int t = 0; t < SP_DTYPES; t++) {
        const struct sp_backend *k = sp_cuda_backend(cuda, (enum sp_dtype)t);

        assert_int_equal(k->dtype, t == SP_FP8 ? SP_BF16 : t);
        assert_int_equal(k->products, t);
        assert_ptr_equal(k->cuda, cuda);
        assert_non_null(sp_cuda_workspace(k, 100));
    }
    assert_int_equal(cuda->multiprocessors, 132);
    assert_int_equal(gemms, 1);
    sp_cuda_destroy(cuda);
    sp_cuda_destroy(NULL);
    assert_int_equal(gemms, 0);
    assert_int_equal(sp_cuda_held_bytes(), 0);
    assert_int_equal(sp_fake_cudart.live, 0);

    gemm_error = ELIBACC;
    assert_int_equal(sp_cuda_create(0, NULL, &cuda), -ELIBACC);
    gemm_error = 0;
    sp_fake_cudart.set_error = cudaErrorDevicesUnavailable;
    assert_int_equal(said_by(create, NULL, text, sizeof text), ENODEV);
    printf("    %s", text);
    assert_true(is_one_line(text));
}

size_t sp_cuda_fp8_bytes(int T, int in, int out)
{
    return (size_t)T * (size_t)(in + out);
}

static int64_t held_for(enum sp_dtype type, int h, int T, const struct sp_attention *at)
{
    const struct sp_linear widest = {.T = T, .in = h, .out = 4 * h};

    return sp_cuda_most_held(0, type, &widest, at);
}

/* Sums over rows, for wide rows and narrow ones; D of attention's rows; operands of fp8. */
TEST(most_held)
{
    const int len = 1 << 20;
    struct sp_attention few = {.batch = 1, .heads = 2, .q_len = 100, .n_kv = 1, .kv_len = &len};
    struct sp_attention many = {.batch = 8, .heads = 16, .q_len = len, .n_kv = 1, .kv_len = &len};

    for (int t = 0; t < SP_DTYPES; t++) {
        enum sp_dtype type = (enum sp_dtype)t;

        assert_int_equal(held_for(type, 64, 1, &few), gemm_bytes + sp_cuda_roomy((size_t)16 << 20));
        assert_int_equal(held_for(type, 4096, 1, &few),
                         gemm_bytes + sp_cuda_roomy((size_t)32 << 20));
        assert_int_equal(held_for(type, 64, 1, &many),
                         gemm_bytes + sp_cuda_roomy((size_t)512 << 20));
        if (type == SP_FP8)
            assert_int_equal(held_for(type, 4096, 1 << 16, &few),
                             gemm_bytes + sp_cuda_roomy((size_t)5 * 4096 << 16));
    }
}

TEST_SETUP(before)
