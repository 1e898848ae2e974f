/*
 * Compares every GPU kernel with the CPU's f32 kernel of the same name, on the same inputs: f32
 * within 1e-5 of the largest element, since the order of sums differs; bf16 within a few roundings
 * of 2^-8 each. Sizes are odd, or those of a real layer. Runs twice, for the same bits. Exit 77
 * without a GPU.
 */
#include "../kernels/comparison.h"
#include "kernels/cuda/device/device.h"

static struct sp_cuda *cuda;

/* ---- memory of the GPU ---- */

static void *blocks[256]; /* since the last release */
static int n_blocks;

static void *alloc(size_t bytes, size_t elem)
{
    (void)elem;
    assert_true(n_blocks < 256);
    sp_cuda_must(cudaMalloc(&blocks[n_blocks], bytes), "a tensor");
    return blocks[n_blocks++];
}

/* Waits: a copy from pageable memory may return before the data arrive, and our stream would not
 * wait for it. */
static void *put(void *to, const void *from, size_t bytes)
{
    sp_cuda_must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "upload");
    sp_cuda_must(cudaDeviceSynchronize(), "upload");
    return to;
}

static void *get(void *to, const void *from, size_t bytes)
{
    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "the kernel");
    sp_cuda_must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "download");
    return to;
}

static void release(void)
{
    while (n_blocks)
        cudaFree(blocks[--n_blocks]);
}

/* ---- the bars ---- */

static double worst_of(size_t n, const float *got, const float *want)
{
    double worst = 0, top = 1e-30;

    for (size_t i = 0; i < n; i++) {
        top = fmax(top, fabs((double)want[i]));
        worst = fmax(worst, isfinite(got[i]) ? fabs((double)got[i] - (double)want[i]) : INFINITY);
    }
    return worst / top;
}

static void judge_f32(const char *what, const struct tensor *x, size_t n, const float *got,
                      const float *want)
{
    double worst = worst_of(n, got, want);

    (void)x;
    printf("f32 %s: %.1e\n", what, worst);
    if (!(worst <= 1e-5))
        fail_msg("%s: error %.3g of the largest element", what, worst);
}

/* Statistics and sums in f32 from bf16 inputs must be as near as those from f32. */
static void judge_bf16(const char *what, const struct tensor *x, size_t n, const float *got,
                       const float *want)
{
    double worst = worst_of(n, got, want), bar = x->rough ? 1.6e-2 : x->f32 ? 1e-5 : 2e-2;

    printf("bf16 %s: %.1e\n", what, worst);
    if (!(worst <= bar))
        fail_msg("%s: error %.3g of the largest element, bar %.1e", what, worst, bar);
}

/* Sums of fp8's tensor cores have some 14 bits. */
static void judge_fp8(const char *what, const struct tensor *x, size_t n, const float *got,
                      const float *want)
{
    double worst = worst_of(n, got, want), bar = !x->f32                  ? 2e-2
                                                 : !strcmp(what, "dbias") ? 1e-5
                                                                          : 1e-3;

    printf("fp8 %s: %.1e\n", what, worst);
    if (!(worst <= bar))
        fail_msg("%s: error %.3g of the largest element, bar %.1e", what, worst, bar);
}

static struct comparison comparison_of(enum sp_dtype type)
{
    return (struct comparison){.backends = {sp_cuda_backend(cuda, type), sp_cpu_backend(SP_F32)},
                               .alloc = alloc,
                               .put = put,
                               .get = get,
                               .release = release,
                               .judge = type == SP_F32 ? judge_f32 : judge_bf16,
                               .loss_error = type == SP_F32 ? 1e-6 : 1e-2};
}

/* ---- kernels ---- */

static void layer(const struct comparison *c, int T, int in, int out)
{
    static const struct sp_rope rope = {.theta = 1e4f};
    int d = out < 256 ? out / 2 * 2 : 256;
    const struct sp_linear l = {.T = T, .in = in, .out = out};

    compare_forward(c, l, 8);
    compare_backward(c, l, 8);
    compare_norms(c, T, out);
    compare_mlp(c, T, out);
    compare_rope(c, (struct sp_rotation){1, T, out / d, d, .pos0 = 3, .rope = &rope}, out % d,
                 false);
}

/* The lengths of slices of keys end with a 0; the last slice is as long as that of the queries, or longer. */
static void attend(const struct comparison *c, struct sp_attention at, const int *lens)
{
    at.scale = 1.0f / sqrtf((float)at.head_dim);
    at.kv_len = lens;
    for (at.n_kv = 0; lens[at.n_kv];)
        at.n_kv++;
    compare_attention(c, at);
}

/* The sum of squares; sums in f32 and of values rounded at random, against sums that are not. */
static void sums(const struct comparison *c, size_t n)
{
    const struct sp_backend *gpu = c->backends[TESTED], *cpu = c->backends[RIGHT];
    struct tensor g = tensor_filled(c, n, 2, true), low = tensor_filled(c, n, 6, false);
    struct tensor sum = tensor_filled(c, n, 7, true);
    double want = 2, got = 2, *at = put(alloc(sizeof got, sizeof got), &got, sizeof got);

    gpu->sumsq(gpu, n, g.at[TESTED], at);
    cpu->sumsq(cpu, n, g.at[RIGHT], &want);
    get(&got, at, sizeof got);
    assert_true(fabs(got / want - 1) < 1e-12);
    gpu->add_to_f32(gpu, n, low.at[TESTED], sum.at[TESTED]);
    cpu->add_f32(cpu, n, low.at[RIGHT], sum.at[RIGHT]);
    gpu->add_at_random(gpu, n, 7, g.at[TESTED], low.at[TESTED]);
    cpu->add_f32(cpu, n, g.at[RIGHT], low.at[RIGHT]);
    tensor_check(c, "add_to_f32", &sum), tensor_check(c, "add_at_random", &low);
    release();
}

static void compare_all(enum sp_dtype type)
{
    static const int whole[] = {64, 0}, slices[] = {24, 40, 33, 0}, longer[] = {512, 512, 0};
    static const int many[] = {300, 700, 0};
    const struct comparison c = comparison_of(type);

    layer(&c, 13, 24, 40);
    layer(&c, 130, 72, 200);
    layer(&c, 512, 768, 3072);
    layer(&c, 37, 33, 17);
    attend(&c, (struct sp_attention){2, 4, 4, 64, .q_len = 64}, whole);
    attend(&c, (struct sp_attention){1, 4, 2, 24, .q_len = 33}, slices);
    attend(&c, (struct sp_attention){1, 8, 8, 128, .q_len = 512}, longer);
    attend(&c, (struct sp_attention){2, 8, 2, 128, .q_len = 33}, slices);
    attend(&c, (struct sp_attention){2, 6, 3, 64, .q_len = 33}, slices);
    attend(&c, (struct sp_attention){2, 8, 2, 128, .q_len = 700}, many);
    attend(&c, (struct sp_attention){2, 6, 3, 64, .q_len = 700}, many);
    attend(&c, (struct sp_attention){1, 4, 4, 64, .q_len = 700}, many);
    compare_embed(&c, (struct sp_embed){.batch = 2, .len = 13, .h = 24, .pos0 = 2}, 37);
    compare_embed(&c, (struct sp_embed){.batch = 2, .len = 9, .h = 24, .pos0 = -4, .here = 3}, 37);
    compare_embed(&c, (struct sp_embed){.batch = 1, .len = 128, .h = 256, .pos0 = 2}, 1000);
    compare_head(&c, 26, 24, 37, 5);
    compare_head(&c, 128, 256, 1000, 64);
    compare_update(&c, 1001), compare_update(&c, 1 << 20);
    sums(&c, 1001), sums(&c, 1 << 20);
}

static void test_f32(void **state)
{
    (void)state;
    compare_all(SP_F32);
}

static void test_bf16(void **state)
{
    (void)state;
    compare_all(SP_BF16);
}

/* Against the CPU's products of the same rounded operands; older GPUs have none in fp8. */
static void test_fp8(void **state)
{
    struct comparison c = comparison_of(SP_BF16);
    int major = 0, minor = 0;

    (void)state;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if (10 * major + minor < 89) {
        printf("no fp8 before compute capability 8.9\n");
        skip();
    }
    c.backends[TESTED] = sp_cuda_backend(cuda, SP_FP8);
    c.backends[RIGHT] = sp_cpu_backend(SP_FP8);
    c.judge = judge_fp8;
    for (int pad = 0; pad < 17; pad += 16) {
        compare_forward(&c, (struct sp_linear){.T = 512, .in = 768, .out = 3072}, pad);
        compare_backward(&c, (struct sp_linear){.T = 512, .in = 768, .out = 3072}, pad);
        compare_forward(&c, (struct sp_linear){.T = 37, .in = 48, .out = 32}, pad);
        compare_backward(&c, (struct sp_linear){.T = 37, .in = 48, .out = 32}, pad);
        compare_forward(&c, (struct sp_linear){.T = 37, .in = 33, .out = 17}, pad);
        compare_backward(&c, (struct sp_linear){.T = 37, .in = 33, .out = 17}, pad);
    }
}

/* More scores than cuDNN takes at once: they are computed some heads, then some queries at a
 * time. */
static void test_parts(void **state)
{
    static const int whole[] = {1024, 0}, slices[] = {300, 99, 625, 0};
    struct sp_cuda *all_at_once = cuda;
    struct comparison c;

    (void)state;
    setenv("SP_CUDA_ATTENTION_MIB", "1", 1), setenv("SP_CUDA_FLASH3", "0", 1);
    assert_int_equal(sp_cuda_create(0, all_at_once->stream, &cuda), 0);
    unsetenv("SP_CUDA_ATTENTION_MIB"), unsetenv("SP_CUDA_FLASH3");
    c = comparison_of(SP_BF16);
    attend(&c, (struct sp_attention){2, 4, 4, 64, .q_len = 128}, whole);
    attend(&c, (struct sp_attention){1, 4, 4, 64, .q_len = 1024}, whole);
    attend(&c, (struct sp_attention){2, 8, 2, 128, .q_len = 625}, slices);
    sp_cuda_destroy(cuda);
    cuda = all_at_once;
}

/* A sum that races shows in its bits. */
static void test_same_bits(void **state)
{
    enum { T = 512, H = 768, TIMES = 5 };
    const struct comparison c = comparison_of(SP_BF16);
    const struct sp_backend *gpu = c.backends[TESTED];
    struct tensor x = tensor_filled(&c, T * H, 1, false), dy = tensor_filled(&c, T * H, 2, false);
    float *first = NULL;

    (void)state;
    for (int i = 0; i < TIMES; i++) {
        struct tensor dw = tensor_filled(&c, H * H, 3, true), db = tensor_filled(&c, H, 4, true);
        float *got;

        gpu->linear_dw(gpu, &(struct sp_linear){.T = T, .in = H, .out = H}, x.at[TESTED],
                       dy.at[TESTED], dw.at[TESTED], db.at[TESTED]);
        got = tensor_values(&c, &dw, TESTED);
        if (i == 0)
            first = got;
        assert_same_bits(H * H, got, first);
    }
    release();
}

/* The same bits from attention's backward: every tile of keys adds to dQ, and every head that
 * shares keys adds to dK and dV. */
static void same_gradients(const struct comparison *c, int kv_heads, int d)
{
    enum { LEN = 1500, HEADS = 8, TIMES = 8 };
    const struct sp_backend *gpu = c->backends[TESTED];
    const struct sp_attention at = {.batch = 1,
                                    .heads = HEADS,
                                    .kv_heads = kv_heads,
                                    .head_dim = d,
                                    .scale = 0.1f,
                                    .q_len = LEN,
                                    .n_kv = 1,
                                    .kv_len = (const int[]){LEN}};
    size_t n = (size_t)(LEN * HEADS * d), m = (size_t)(LEN * 2 * kv_heads * d);
    struct tensor q = tensor_filled(c, n, 1, false), d_o = tensor_filled(c, n, 2, false);
    struct tensor o = tensor_empty(c, n, false), kv = tensor_filled(c, m, 3, false);
    struct tensor lse = tensor_empty(c, HEADS * LEN, true);
    const void *keys[] = {kv.at[TESTED]};
    float *first[2] = {NULL, NULL};

    gpu->attention(gpu, &at, q.at[TESTED], keys, o.at[TESTED], lse.at[TESTED]);
    for (int i = 0; i < TIMES; i++) {
        struct tensor dq = tensor_empty(c, n, false), dkv = tensor_empty(c, m, false);
        float *got[2];

        gpu->attention_bwd(gpu, &at,
                           &(struct sp_attention_bwd){.q = q.at[TESTED],
                                                      .kv = keys,
                                                      .o = o.at[TESTED],
                                                      .lse = lse.at[TESTED],
                                                      .d_o = d_o.at[TESTED],
                                                      .dq = dq.at[TESTED],
                                                      .dkv = &dkv.at[TESTED],
                                                      .first = true});
        got[0] = tensor_values(c, &dq, TESTED), got[1] = tensor_values(c, &dkv, TESTED);
        if (i == 0)
            memcpy(first, got, sizeof first);
        assert_same_bits(n, got[0], first[0]);
        assert_same_bits(m, got[1], first[1]);
    }
    release();
}

static void test_same_gradients(void **state)
{
    const struct comparison c = comparison_of(SP_BF16);

    (void)state;
    same_gradients(&c, 8, 64), same_gradients(&c, 2, 64);
    same_gradients(&c, 8, 128), same_gradients(&c, 2, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),       cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_fp8),       cmocka_unit_test(test_parts),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_same_gradients),
    };
    cudaStream_t stream;
    int devices = 0, failed;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (sp_cuda_check(0))
        return 77;
    sp_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    if (sp_cuda_create(0, stream, &cuda))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    sp_cuda_destroy(cuda);
    return failed;
}
