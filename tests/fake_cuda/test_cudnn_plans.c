/*
 * Plans that the cuDNN of this machine makes for GPUs that are described to it: it computes every attention of
 * the models, in the workspace that memory is planned with. Nothing runs. Without cuDNN there is nothing
 * to ask, and the test is skipped.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kernels/cuda/attention/cudnn_plans.h"
#include "kernels/cuda/pointwise/sums.h"

static const double MIB = 1 << 20;

static const struct gpu {
    const char *name;
    int capability, shared, multiprocessors;
    size_t memory;
} gpus[] = {
    {"NVIDIA H200", 90, 232448, 132, 150754820096},
    {"NVIDIA A100", 80, 166912, 108, 85017493504},
    {"NVIDIA B200", 100, 232448, 148, 191503204352},
};

static const struct gpu *gpu;

/* As cuDNN writes devices; NULL: it does not know them. */
static struct sp_cudnn *describe(const char **why)
{
    static const char form[] =
        "{\"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, \"driverVer\": 13000,"
        " \"totalGlobalMem\": %zu, \"maxGridSize\": [2147483647, 65535, 65535],"
        " \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, \"multiProcessorCount\": %d,"
        " \"smCountOrigin\": 0, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152,"
        " \"maxSharedMemoryPerBlockOptin\": %d, \"oversizedSharedMemoryPerBlock\": 0,"
        " \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536,"
        " \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048,"
        " \"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1,"
        " \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, \"memoryBusWidth\": 6144,"
        " \"l2CacheSize\": 62914560}";
    char json[sizeof form + 200];

    snprintf(json, sizeof json, form, gpu->name, 10 * gpu->capability, gpu->memory,
             gpu->multiprocessors, gpu->shared);
    return sp_cudnn_open_described(json, why);
}

static struct sp_cudnn *cudnn;

struct problem {
    const char *name;
    int batch, heads, kv_heads, d, q_len, kv_len;
    bool full;
};

static const struct problem problems[] = {
    {"gpt2-124m-1k", 16, 12, 12, 64, 1024, 1024, false},
    {"grouped heads", 1, 32, 8, 128, 16384, 16384, false},
    {"odd lengths", 3, 6, 2, 64, 97, 613, false},
    {"gpt3-1.3b-2k", 4, 16, 16, 128, 2048, 2048, false},
    {"gpt3-1.3b-8k", 1, 16, 16, 128, 8192, 8192, false},
    {"gpt3-1.3b-32k", 1, 16, 16, 128, 32768, 32768, false},
    {"llama-h4096-16k", 1, 32, 32, 128, 16384, 16384, false},
    {"one slice of many", 1, 16, 16, 128, 4096, 65536, false},
    {"small heads", 2, 4, 4, 16, 64, 64, false},
    {"heads of 96", 1, 12, 12, 96, 512, 512, false},
    {"earlier keys", 1, 16, 16, 128, 4096, 2048, true},
    {"grouped, earlier", 1, 32, 8, 128, 4096, 16384, true},
};
enum { PROBLEMS = sizeof problems / sizeof problems[0], SOME = 3 };

static struct sp_fused_shape shape_of(const struct problem *p, bool backward, bool deterministic)
{
    struct sp_fused_shape s;

    memset(&s, 0, sizeof s);
    s.backward = backward;
    s.deterministic = deterministic;
    s.full = p->full;
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

enum { FORWARD, BACKWARD, DETERMINISTIC, KINDS };

/* Forward in nothing, backward in no more than the bound. On Hopper that is close; before, dQ takes twice
 * as much, and after, a deterministic one keeps no scores. */
static void whole(const struct problem *p, int kind)
{
    static const char *const names[KINDS] = {"forward", "backward", "deterministic"};
    struct sp_fused_shape s = shape_of(p, kind != FORWARD, kind == DETERMINISTIC);
    size_t bytes = 0, bound = sp_cudnn_bound(&s, gpu->memory);
    const char *why = "";
    struct sp_cudnn_plan *plan = sp_cudnn_plan_create(cudnn, &s, &bytes, &why);

    printf("    %-18s %-13s %9.1f of %9.1f MiB%s%s\n", p->name, names[kind], (double)bytes / MIB,
           (double)bound / MIB, plan ? "" : ": ", why);
    assert_non_null(plan);
    assert_true(bytes <= bound);
    if (kind != FORWARD && gpu == gpus)
        assert_true((double)bound <= (kind == BACKWARD ? 2.3 : 1.1) * (double)bytes + 2 * MIB);
    sp_cudnn_plan_destroy(plan);
}

static void test_whole(void **state)
{
    (void)state;
    for (int i = 0; i < (gpu == gpus ? PROBLEMS : SOME); i++)
        for (int kind = 0; kind < KINDS; kind++)
            whole(&problems[i], kind);
}

/* Problems too large for their scores, or for dK and dV of every query head: in parts, within a share of
 * the GPU's memory. */
static void test_parts(void **state)
{
    static const struct {
        struct problem p;
        bool deterministic;
        size_t gib;        /* of a smaller GPU, or 0 */
        int heads, pieces; /* at a time; of the queries */
    } cases[] = {
        {{"gpt3-1.3b-8k", 1, 16, 16, 128, 8192, 8192, false}, true, 0, 16, 1},
        {{"gpt3-1.3b-8k", 1, 16, 16, 128, 8192, 8192, false}, true, 80, 8, 1},
        {{"gpt3-1.3b-32k", 1, 16, 16, 128, 32768, 32768, false}, true, 0, 1, 1},
        {{"gpt3-1.3b-64k", 1, 16, 16, 128, 65536, 65536, false}, true, 0, 1, 4},
        {{"llama-h4096-16k", 1, 32, 32, 128, 16384, 16384, false}, true, 0, 4, 1},
        {{"grouped heads", 1, 32, 8, 128, 32768, 32768, false}, true, 0, 1, 1},
        {{"grouped heads", 1, 32, 4, 128, 8192, 131072, false}, false, 24, 4, 1},
        {{"a slice of 512k", 1, 16, 16, 128, 8192, 524288, false}, true, 0, 1, 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t memory = cases[i].gib ? cases[i].gib << 30 : gpu->memory;
        struct sp_cudnn_plans plans = {cudnn, sp_cudnn_most_bytes(memory), NULL, false};
        struct sp_fused_shape s = shape_of(&cases[i].p, true, cases[i].deterministic);
        const struct sp_cudnn_known *known = sp_cudnn_find(&plans, &s);
        double bound = (double)sp_cudnn_bound(&s, plans.most_bytes), bytes;

        assert_non_null(known);
        bytes = (double)known->workspace_bytes;
        printf("    %-18s %2d heads at a time, queries in %d: %7.1f of %7.1f MiB\n",
               cases[i].p.name, known->parts.part.heads, known->parts.pieces, bytes / MIB,
               bound / MIB);
        assert_int_equal(known->parts.part.heads, cases[i].heads);
        assert_int_equal(known->parts.pieces, cases[i].pieces);
        assert_true(bytes <= bound && bound <= 1.4 * bytes + 2 * MIB);
        sp_cudnn_forget(&plans);
    }
}

static void test_refusals(void **state)
{
    struct problem odd = {"heads of 12", 1, 2, 2, 12, 64, 64, false};
    struct sp_fused_shape s = shape_of(&odd, false, false);
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

static int on_gpu(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refusals),
    };
    const struct CMUnitTest some[] = {cmocka_unit_test(test_whole)};
    const char *why = "";
    int err;

    cudnn = describe(&why);
    if (!cudnn) {
        printf("%s\n", why);
        return 1;
    }
    err = gpu == gpus ? cmocka_run_group_tests_name(gpu->name, tests, NULL, NULL)
                      : cmocka_run_group_tests_name(gpu->name, some, NULL, NULL);
    sp_cudnn_close(cudnn);
    return err != 0;
}

/* The frontend asks the CUDA runtime for the capability, which a process sees once. */
static int in_process(void)
{
    char capability[16];
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (!pid) {
        snprintf(capability, sizeof capability, "%d", gpu->capability);
        setenv("SP_FAKE_GPU_CAPABILITY", capability, 1);
        exit(on_gpu());
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

int main(void)
{
    int failed = 0;

    if (!sp_cudnn_there()) {
        printf("skipped: %s\n", sp_cudnn_about());
        return 77;
    }
    printf("cuDNN %s\n", sp_cudnn_about());
    for (gpu = gpus; gpu < gpus + sizeof gpus / sizeof gpus[0]; gpu++)
        failed += in_process();
    return failed;
}
