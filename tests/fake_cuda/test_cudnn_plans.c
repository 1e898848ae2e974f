/*
 * What the cuDNN of this machine plans for a Hopper GPU that is described to it: it computes every
 * attention of the models, in the workspace that memory is planned with. Nothing runs. Without cuDNN
 * there is nothing to ask, and the test is skipped.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "kernels/cuda/cudnn_parts.h"
#include "kernels/cuda/sums.h"

static const double MIB = 1 << 20;

/* An H200, as cuDNN writes devices. */
static const char hopper[] =
    "{\"deviceName\": \"NVIDIA H200\", \"cudaDeviceId\": 0, \"deviceVer\": 900, \"driverVer\": "
    "13000,"
    " \"totalGlobalMem\": 150754820096, \"maxGridSize\": [2147483647, 65535, 65535],"
    " \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": 132,"
    " \"smCountOrigin\": 0, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152,"
    " \"maxSharedMemoryPerBlockOptin\": 232448, \"oversizedSharedMemoryPerBlock\": 0,"
    " \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32,"
    " \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0,"
    " \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000,"
    " \"memoryBusWidth\": 6144, \"l2CacheSize\": 62914560}";
static const size_t memory = 150754820096;

static struct sp_cudnn *cudnn;

/* Of plans that are never run. */
void sp_cuda_accumulate(const struct sp_backend *k, size_t n, const void *x, float *sum)
{
    (void)k, (void)n, (void)x, (void)sum;
    fail();
}

struct problem {
    const char *name;
    int batch, heads, kv_heads, d, q_len, kv_len;
};

static const struct problem problems[] = {
    {"gpt2-124m-1k", 16, 12, 12, 64, 1024, 1024},
    {"gpt3-1.3b-2k", 4, 16, 16, 128, 2048, 2048},
    {"gpt3-1.3b-8k", 1, 16, 16, 128, 8192, 8192},
    {"gpt3-1.3b-32k", 1, 16, 16, 128, 32768, 32768},
    {"llama-h4096-16k", 1, 32, 32, 128, 16384, 16384},
    {"grouped heads", 1, 32, 8, 128, 16384, 16384},
    {"one slice of many", 1, 16, 16, 128, 4096, 65536},
    {"odd lengths", 3, 6, 2, 64, 97, 613},
    {"small heads", 2, 4, 4, 16, 64, 64},
    {"heads of 96", 1, 12, 12, 96, 512, 512},
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static struct sp_cudnn_shape shape_of(const struct problem *p, bool backward, bool deterministic)
{
    struct sp_cudnn_shape s;

    memset(&s, 0, sizeof s);
    s.backward = backward;
    s.deterministic = deterministic;
    s.batch = p->batch;
    s.heads = p->heads;
    s.kv_heads = p->kv_heads;
    s.head_dim = p->d;
    s.q_len = s.q_rows = p->q_len;
    s.q_row = p->heads * p->d;
    s.kv_len = s.kv_rows = s.dkv_rows = p->kv_len;
    s.kv_row = s.dkv_row = 2 * p->kv_heads * p->d;
    s.scale = 0.125f;
    return s;
}

/* Whole problems: forward in nothing, backward in what the bound says, and not much less. */
static void test_whole(void **state)
{
    (void)state;
    for (int i = 0; i < PROBLEMS; i++)
        for (int kind = 0; kind < 3; kind++) { /* forward, backward, deterministic backward */
            struct sp_cudnn_shape s = shape_of(&problems[i], kind > 0, kind == 2);
            size_t bytes = 0, bound = sp_cudnn_bound(&s, memory);
            const char *why = "";
            struct sp_cudnn_plan *plan = sp_cudnn_plan_create(cudnn, &s, &bytes, &why);

            printf("    %-18s %-13s %9.1f of %9.1f MiB%s%s\n", problems[i].name,
                   kind == 0   ? "forward"
                   : kind == 1 ? "backward"
                               : "deterministic",
                   (double)bytes / MIB, (double)bound / MIB, plan ? "" : ": ", why);
            assert_non_null(plan);
            assert_true(bytes <= bound);
            /* dQ takes twice as much on an older GPU. */
            assert_true(kind == 0 ||
                        (double)bound <= (kind == 1 ? 2.3 : 1.1) * (double)bytes + 2 * MIB);
            sp_cudnn_plan_destroy(plan);
        }
}

/* Problems too large for their scores: in parts, within a share of the GPU's memory. */
static void test_parts(void **state)
{
    static const struct {
        struct problem p;
        int heads, pieces; /* at a time; of the queries */
    } cases[] = {
        {{"gpt3-1.3b-8k", 1, 16, 16, 128, 8192, 8192}, 16, 1},
        {{"gpt3-1.3b-32k", 1, 16, 16, 128, 32768, 32768}, 1, 1},
        {{"gpt3-1.3b-64k", 1, 16, 16, 128, 65536, 65536}, 1, 4},
        {{"llama-h4096-16k", 1, 32, 32, 128, 16384, 16384}, 4, 1},
        {{"grouped heads", 1, 32, 8, 128, 32768, 32768}, 4, 4},
        {{"a slice of 512k", 1, 16, 16, 128, 8192, 524288}, 1, 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sp_cudnn_plans plans = {cudnn, sp_cudnn_most_bytes(memory), NULL, false};
        struct sp_cudnn_shape s = shape_of(&cases[i].p, true, true);
        const struct sp_cudnn_known *known = sp_cudnn_find(&plans, &s);
        size_t bound = sp_cudnn_bound(&s, plans.most_bytes);

        assert_non_null(known);
        printf("    %-18s %2d heads at a time, queries in %d: %7.1f of %7.1f MiB\n",
               cases[i].p.name, known->part.heads, known->pieces,
               (double)known->workspace_bytes / MIB, (double)bound / MIB);
        assert_int_equal(known->part.heads, cases[i].heads);
        assert_int_equal(known->pieces, cases[i].pieces);
        assert_true(known->workspace_bytes <= bound);
        sp_cudnn_forget(&plans);
    }
}

static void test_refusals(void **state)
{
    struct problem odd = {"heads of 12", 1, 2, 2, 12, 64, 64};
    struct sp_cudnn_shape s = shape_of(&odd, false, false);
    const char *why = NULL;
    size_t bytes;

    (void)state;
    assert_null(sp_cudnn_plan_create(cudnn, &s, &bytes, &why));
    printf("    %s\n", why);
    assert_true(strlen(why) > 10 && !strchr(why, '\n'));
    assert_null(sp_cudnn_open_described("{}", &why));
    printf("    %s\n", why);
    assert_true(strlen(why) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refusals),
    };
    const char *why = "";
    int err;

    if (strncmp(sp_cudnn_about(), "none", 4) == 0) {
        printf("skipped: %s\n", sp_cudnn_about());
        return 77;
    }
    printf("cuDNN %s\n", sp_cudnn_about());
    cudnn = sp_cudnn_open_described(hopper, &why);
    if (!cudnn) {
        printf("%s\n", why);
        return 1;
    }
    err = cmocka_run_group_tests(tests, NULL, NULL);
    sp_cudnn_close(cudnn);
    return err;
}
