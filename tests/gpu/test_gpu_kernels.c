/*
 * Compares every GPU kernel with the CPU's f32 kernel of the same name, on the same inputs: f32
 * within 1e-5 of the largest element, since the order of sums differs; bf16 within a few roundings
 * of 2^-8 each. Sizes are odd, or those of a real layer. Runs twice, for the same bits. Exit 77
 * without a GPU.
 */
#include "../kernels/reference.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"

static struct sp_cuda *cuda;
static const struct sp_backend *gpu, *cpu; /* of the type being tested; f32 */

/* A tensor on both sides. `f32`: of that type whatever the backend's. */
struct both {
    size_t n;
    bool f32;
    float *host; /* what the CPU reads and writes */
    void *at;    /* on the GPU */
};

static enum sp_dtype type_of(const struct both *b)
{
    return b->f32 ? SP_F32 : gpu->dtype;
}

/* Waits: a copy from pageable memory may return before the data arrive, and our stream would not
 * wait for it. */
static void copy_in(void *to, const void *from, size_t bytes)
{
    sp_cuda_must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "upload");
    sp_cuda_must(cudaDeviceSynchronize(), "upload");
}

static void upload(struct both *b)
{
    enum sp_dtype type = type_of(b);
    size_t bytes = b->n * sp_dtype_bytes(type);
    uint16_t *low = new_bytes(bytes);

    for (size_t i = 0; type == SP_BF16 && i < b->n; i++) {
        low[i] = sp_bf16(b->host[i]);
        b->host[i] = sp_bf16_value(low[i]);
    }
    copy_in(b->at, type == SP_BF16 ? (void *)low : b->host, bytes);
    free(low);
}

static struct both empty(size_t n, bool f32)
{
    struct both b = {.n = n, .f32 = f32, .host = new_nan(n)};

    sp_cuda_must(cudaMalloc(&b.at, n * sizeof(float)), "a tensor");
    upload(&b);
    return b;
}

static struct both filled(size_t n, uint64_t seed, bool f32)
{
    struct both b = {.n = n, .f32 = f32, .host = new_random(n, seed)};

    sp_cuda_must(cudaMalloc(&b.at, n * sizeof(float)), "a tensor");
    upload(&b);
    return b;
}

static void drop(struct both *b)
{
    free(b->host);
    cudaFree(b->at);
}

static float *download(const struct both *b)
{
    enum sp_dtype type = type_of(b);
    float *x = new_bytes(b->n * sizeof *x);
    uint16_t *low = new_bytes(b->n * sizeof *low);

    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "the kernel");
    sp_cuda_must(cudaMemcpy(type == SP_BF16 ? (void *)low : x, b->at, b->n * sp_dtype_bytes(type),
                            cudaMemcpyDeviceToHost),
                 "download");
    for (size_t i = 0; type == SP_BF16 && i < b->n; i++)
        x[i] = sp_bf16_value(low[i]);
    free(low);
    return x;
}

/* Compares what both wrote. Statistics and sums in f32 from bf16 inputs must be as near as those
 * from f32. */
static void check(const char *what, struct both *b)
{
    double bar = b->f32 || gpu->dtype == SP_F32 ? 1e-5 : 2e-2, worst = 0, top = 1e-30;
    float *got = download(b);

    for (size_t i = 0; i < b->n; i++) {
        double want = (double)b->host[i];

        if (isnan(want)) /* was not to be written */
            continue;
        top = fmax(top, fabs(want));
        worst = fmax(worst, isfinite(got[i]) ? fabs((double)got[i] - want) : INFINITY);
    }
    printf("%s %s: %.1e\n", sp_dtype_name(gpu->dtype), what, worst / top);
    if (!(worst / top <= bar))
        fail_msg("%s: error %.3g of the largest element, bar %.1e", what, worst / top, bar);
    free(got);
    drop(b);
}

#define BOTH(call_gpu, call_cpu)                                                                   \
    do {                                                                                           \
        call_gpu;                                                                                  \
        call_cpu;                                                                                  \
    } while (0)

struct sizes {
    int T, in, out;
};
static const struct sizes sizes[] = {{13, 24, 40}, {130, 72, 200}, {512, 768, 3072}, {37, 33, 17}};

static void products(const struct sizes *s)
{
    int T = s->T, in = s->in, out = s->out, ld = out + 8;
    size_t x_n = (size_t)T * (size_t)in, y_n = (size_t)T * (size_t)out;
    struct both x = filled(x_n, 1, false), w = filled((size_t)in * (size_t)out, 2, false);
    struct both bias = filled((size_t)out, 3, false), r = filled(y_n, 4, false), y, u;
    struct both dy = filled((size_t)T * (size_t)ld, 5, false);
    struct both dw = filled((size_t)in * (size_t)out, 6, true), db = filled((size_t)out, 7, true);

    y = empty((size_t)T * (size_t)ld, false);
    BOTH(gpu->linear(gpu,
                     &(struct sp_linear){
                         .T = T, .in = in, .out = out, .w = w.at, .bias = bias.at, .ld = ld},
                     x.at, y.at),
         cpu->linear(cpu,
                     &(struct sp_linear){
                         .T = T, .in = in, .out = out, .w = w.host, .bias = bias.host, .ld = ld},
                     x.host, y.host));
    check("linear", &y);
    y = empty(y_n, false);
    BOTH(gpu->linear_add(gpu, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.at}, x.at,
                         r.at, y.at),
         cpu->linear_add(cpu, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.host},
                         x.host, r.host, y.host));
    check("linear_add", &y);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        y = empty(y_n, false), u = empty(y_n, false);
        BOTH(gpu->linear_act(
                 gpu, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.at, .bias = bias.at},
                 act, x.at, u.at, y.at),
             cpu->linear_act(
                 cpu,
                 &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.host, .bias = bias.host},
                 act, x.host, u.host, y.host));
        check("linear_act u", &u), check("linear_act", &y);
    }
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        y = accumulate ? filled(x_n, 8, false) : empty(x_n, false);
        BOTH(gpu->linear_dx(gpu,
                            &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.at, .ld = ld},
                            dy.at, y.at, accumulate),
             cpu->linear_dx(
                 cpu, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.host, .ld = ld},
                 dy.host, y.host, accumulate));
        check(accumulate ? "linear_dx +=" : "linear_dx", &y);
    }
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        u = filled(x_n, 9, false), y = empty(x_n, false);
        BOTH(gpu->linear_dx_act(gpu, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.at},
                                act, r.at, u.at, y.at),
             cpu->linear_dx_act(cpu, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.host},
                                act, r.host, u.host, y.host));
        check("linear_dx_act", &y), drop(&u);
    }
    BOTH(gpu->linear_dw(gpu, &(struct sp_linear){.T = T, .in = in, .out = out, .ld = ld}, x.at,
                        dy.at, dw.at, db.at),
         cpu->linear_dw(cpu, &(struct sp_linear){.T = T, .in = in, .out = out, .ld = ld}, x.host,
                        dy.host, dw.host, db.host));
    check("linear_dw", &dw), check("linear_dw bias", &db);
    drop(&x), drop(&w), drop(&bias), drop(&r), drop(&dy);
}

static void norms(const struct sizes *s, bool rms)
{
    int T = s->T, h = s->out;
    size_t n = (size_t)T * (size_t)h;
    struct both x = filled(n, 1, false), gain = filled((size_t)h, 2, false), y;
    struct both bias = filled((size_t)h, 3, false), stats = empty(2 * (size_t)T, true);
    struct both dres = filled(n, 4, false), dx = filled(n, 5, false);
    struct both dg = filled((size_t)h, 6, true), db = filled((size_t)h, 7, true);
    void *bias_at = rms ? NULL : bias.at;
    float *bias_host = rms ? NULL : bias.host;

    y = empty(n, false);
    BOTH(gpu->norm(gpu,
                   &(struct sp_norm){
                       .rms = rms, .T = T, .h = h, .eps = 1e-5f, .gain = gain.at, .bias = bias_at},
                   x.at, y.at, stats.at),
         cpu->norm(
             cpu,
             &(struct sp_norm){
                 .rms = rms, .T = T, .h = h, .eps = 1e-5f, .gain = gain.host, .bias = bias_host},
             x.host, y.host, stats.host));
    check("norm", &y);
    y = empty(n, false);
    BOTH(gpu->norm_apply(gpu, &(struct sp_norm){.T = T, .h = h, .gain = gain.at, .bias = bias_at},
                         x.at, stats.at, y.at),
         cpu->norm_apply(cpu,
                         &(struct sp_norm){.T = T, .h = h, .gain = gain.host, .bias = bias_host},
                         x.host, stats.host, y.host));
    check("norm_apply", &y);
    BOTH(gpu->norm_bwd(gpu, &(struct sp_norm){.rms = rms, .T = T, .h = h, .gain = gain.at}, x.at,
                       stats.at,
                       &(struct sp_norm_bwd){.dy = dx.at,
                                             .dres = dres.at,
                                             .dx = dx.at,
                                             .dgain = dg.at,
                                             .dbias = rms ? NULL : db.at}),
         cpu->norm_bwd(cpu, &(struct sp_norm){.rms = rms, .T = T, .h = h, .gain = gain.host},
                       x.host, stats.host,
                       &(struct sp_norm_bwd){.dy = dx.host,
                                             .dres = dres.host,
                                             .dx = dx.host,
                                             .dgain = dg.host,
                                             .dbias = rms ? NULL : db.host}));
    check("norm_bwd", &dx), check("norm_bwd gain", &dg), check("norm_bwd bias", &db);
    check("norm statistics", &stats);
    drop(&x), drop(&gain), drop(&bias), drop(&dres);
}

static void attend(int B, int A, int G, int D, int q_len, int n_kv, const int *len)
{
    struct sp_attention at = {.batch = B,
                              .heads = A,
                              .kv_heads = G,
                              .head_dim = D,
                              .scale = 1.0f / sqrtf((float)D),
                              .q_len = q_len,
                              .n_kv = n_kv,
                              .kv_len = len};
    size_t q_n = (size_t)B * (size_t)q_len * (size_t)(A * D);
    struct both q = filled(q_n, 1, false), d_o = filled(q_n, 2, false), o = empty(q_n, false);
    struct both lse = empty((size_t)B * (size_t)A * (size_t)q_len, true), kv[4];
    const void *keys[4], *host_keys[4];

    for (int j = 0; j < n_kv; j++) {
        at.q_pos += j < n_kv - 1 ? len[j] : 0;
        kv[j] = filled((size_t)B * (size_t)len[j] * (size_t)(2 * G * D), 3 + (uint64_t)j, false);
        keys[j] = kv[j].at, host_keys[j] = kv[j].host;
    }
    BOTH(gpu->attention(gpu, &at, q.at, keys, o.at, lse.at),
         cpu->attention(cpu, &at, q.host, host_keys, o.host, lse.host));
    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "attention");
    {
        struct both seen = empty(q_n, false), sums = empty(lse.n, true);

        memcpy(seen.host, o.host, q_n * sizeof(float));
        memcpy(sums.host, lse.host, lse.n * sizeof(float));
        sp_cuda_must(
            cudaMemcpy(seen.at, o.at, q_n * sp_dtype_bytes(gpu->dtype), cudaMemcpyDeviceToDevice),
            "o");
        sp_cuda_must(cudaMemcpy(sums.at, lse.at, lse.n * sizeof(float), cudaMemcpyDeviceToDevice),
                     "lse");
        sp_cuda_must(cudaDeviceSynchronize(), "copies");
        check("attention", &seen), check("attention lse", &sums);
    }
    upload(&o), upload(&lse); /* the backward of both reads the same */
    for (int first = 0; first < 2; first++) {
        struct both dq = empty(q_n, false), dkv[4];
        void *gradients[4], *host_gradients[4];

        for (int j = 0; j < n_kv; j++) {
            dkv[j] = first ? empty(kv[j].n, false) : filled(kv[j].n, 11 + (uint64_t)j, false);
            gradients[j] = dkv[j].at, host_gradients[j] = dkv[j].host;
        }
        BOTH(gpu->attention_bwd(gpu, &at,
                                &(struct sp_attention_bwd){.q = q.at,
                                                           .kv = keys,
                                                           .o = o.at,
                                                           .lse = lse.at,
                                                           .d_o = d_o.at,
                                                           .dq = dq.at,
                                                           .dkv = gradients,
                                                           .first = first}),
             cpu->attention_bwd(cpu, &at,
                                &(struct sp_attention_bwd){.q = q.host,
                                                           .kv = host_keys,
                                                           .o = o.host,
                                                           .lse = lse.host,
                                                           .d_o = d_o.host,
                                                           .dq = dq.host,
                                                           .dkv = host_gradients,
                                                           .first = first}));
        check("attention_bwd dq", &dq);
        for (int j = 0; j < n_kv; j++)
            check("attention_bwd dkv", &dkv[j]);
    }
    for (int j = 0; j < n_kv; j++)
        drop(&kv[j]);
    drop(&q), drop(&d_o), drop(&o), drop(&lse);
}

static void mlp(const struct sizes *s)
{
    const struct sp_rope rope = {.theta = 1e4f};
    int T = s->T, f = s->out, d = f < 256 ? f / 2 * 2 : 256;
    size_t n = (size_t)T * (size_t)f;
    struct both u = filled(2 * n, 1, false), dy = filled(n, 2, false), y;

    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        y = empty(2 * n, false);
        BOTH(gpu->act(gpu, act, 2 * n, u.at, y.at), cpu->act(cpu, act, 2 * n, u.host, y.host));
        check("act", &y);
        y = empty(n, false);
        BOTH(gpu->gated(gpu, &(struct sp_gated){.act = act, .T = T, .f = f}, u.at, y.at),
             cpu->gated(cpu, &(struct sp_gated){.act = act, .T = T, .f = f}, u.host, y.host));
        check("gated", &y);
        y = empty(2 * n, false);
        BOTH(gpu->gated_bwd(gpu, &(struct sp_gated){.act = act, .T = T, .f = f}, u.at, dy.at, y.at),
             cpu->gated_bwd(cpu, &(struct sp_gated){.act = act, .T = T, .f = f}, u.host, dy.host,
                            y.host));
        check("gated_bwd", &y);
    }
    y = filled(n, 3, false);
    BOTH(gpu->add(gpu, n, dy.at, y.at), cpu->add(cpu, n, dy.host, y.host));
    check("add", &y);
    y = filled(n, 4, false);
    BOTH(gpu->rope(
             gpu,
             &(struct sp_rotation){
                 .batch = 1, .len = T, .heads = f / d, .d = d, .ld = f, .pos0 = 3, .rope = &rope},
             false, y.at),
         cpu->rope(
             cpu,
             &(struct sp_rotation){
                 .batch = 1, .len = T, .heads = f / d, .d = d, .ld = f, .pos0 = 3, .rope = &rope},
             false, y.host));
    check("rope", &y);
    drop(&u), drop(&dy);
}

static void tokens(int B, int S, int h, int V, int rows)
{
    int T = B * S;
    size_t n = (size_t)T * (size_t)h;
    struct both table = filled((size_t)V * (size_t)h, 1, false), y = empty(n, false);
    struct both places = filled((size_t)(S + 2) * (size_t)h, 2, false), x = filled(n, 3, false);
    struct both dt = filled(table.n, 4, true), dp = filled(places.n, 5, true);
    struct both dw = filled(table.n, 6, true), dx = empty(n, false);
    struct both scratch = empty((size_t)rows * (size_t)sp_logits_ld(V), false);
    int32_t *ids = new_bytes((size_t)T * sizeof *ids), *ids_at;
    int32_t *targets = new_bytes((size_t)T * sizeof *ids), *targets_at;
    double loss = 0.5, got, *loss_at;

    for (int t = 0; t < T; t++)
        ids[t] = (t * t + 3) % V, targets[t] = t % 5 == 2 ? SP_NO_TARGET : ids[t];
    sp_cuda_must(cudaMalloc((void **)&ids_at, (size_t)T * sizeof *ids), "ids");
    copy_in(ids_at, ids, (size_t)T * sizeof *ids);
    sp_cuda_must(cudaMalloc((void **)&targets_at, (size_t)T * sizeof *ids), "targets");
    copy_in(targets_at, targets, (size_t)T * sizeof *ids);
    sp_cuda_must(cudaMalloc((void **)&loss_at, sizeof loss), "loss");
    copy_in(loss_at, &loss, sizeof loss);
    BOTH(gpu->embed(gpu, &(struct sp_embed){.batch = B, .len = S, .h = h, .pos0 = 2, .ids = ids_at},
                    table.at, places.at, y.at),
         cpu->embed(cpu, &(struct sp_embed){.batch = B, .len = S, .h = h, .pos0 = 2, .ids = ids},
                    table.host, places.host, y.host));
    check("embed", &y);
    BOTH(gpu->embed_bwd(gpu,
                        &(struct sp_embed){.batch = B, .len = S, .h = h, .pos0 = 2, .ids = ids_at},
                        x.at, dt.at, dp.at),
         cpu->embed_bwd(cpu,
                        &(struct sp_embed){.batch = B, .len = S, .h = h, .pos0 = 2, .ids = ids},
                        x.host, dt.host, dp.host));
    check("embed_bwd", &dt), check("embed_bwd positions", &dp);
    BOTH(gpu->cross_entropy(gpu,
                            &(struct sp_logits){.T = T,
                                                .h = h,
                                                .V = V,
                                                .rows = rows,
                                                .x = x.at,
                                                .w = table.at,
                                                .targets = targets_at,
                                                .scale = 0.1f,
                                                .scratch = scratch.at},
                            loss_at, dx.at, dw.at),
         cpu->cross_entropy(cpu,
                            &(struct sp_logits){.T = T,
                                                .h = h,
                                                .V = V,
                                                .rows = rows,
                                                .x = x.host,
                                                .w = table.host,
                                                .targets = targets,
                                                .scale = 0.1f,
                                                .scratch = scratch.host},
                            &loss, dx.host, dw.host));
    check("cross_entropy dx", &dx);
    dw.f32 = gpu->dtype == SP_F32; /* a sum of rounded logits' gradients: the bar of bf16 */
    if (dw.f32) {
        check("cross_entropy dw", &dw);
    } else {
        float *sum = new_bytes(dw.n * sizeof *sum);
        double worst = 0, top = 0;

        sp_cuda_must(cudaStreamSynchronize(cuda->stream), "cross_entropy");
        sp_cuda_must(cudaMemcpy(sum, dw.at, dw.n * sizeof *sum, cudaMemcpyDeviceToHost), "dw");
        for (size_t i = 0; i < dw.n; i++) {
            worst = fmax(worst, fabs((double)sum[i] - (double)dw.host[i]));
            top = fmax(top, fabs((double)dw.host[i]));
        }
        printf("bf16 cross_entropy dw: %.1e\n", worst / top);
        assert_true(worst / top < 1.6e-2);
        free(sum);
        drop(&dw);
    }
    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "cross_entropy");
    sp_cuda_must(cudaMemcpy(&got, loss_at, sizeof got, cudaMemcpyDeviceToHost), "loss");
    printf("%s loss: %.9g, %.9g\n", sp_dtype_name(gpu->dtype), got, loss);
    assert_true(fabs(got / loss - 1) < (gpu->dtype == SP_F32 ? 1e-6 : 1e-2));
    cudaFree(ids_at), cudaFree(targets_at), cudaFree(loss_at), free(ids), free(targets);
    drop(&table), drop(&places), drop(&x), drop(&scratch);
}

static void update(size_t n)
{
    const struct sp_adamw hp = {.lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .bias1 = 0.1f,
                                .bias2 = 0.05f,
                                .grad_scale = 0.5f};
    struct both w = filled(n, 1, true), g = filled(n, 2, true), m = filled(n, 3, true);
    struct both v = filled(n, 4, true), low = empty(n, false), again = empty(n, false);
    struct both y = filled(n, 5, true), way = filled(n, 6, false), home = filled(n, 7, true);
    double sum = 2, got, *sum_at;

    for (size_t i = 0; i < n; i++)
        v.host[i] = fabsf(v.host[i]);
    upload(&v);
    sp_cuda_must(cudaMalloc((void **)&sum_at, sizeof sum), "sum");
    copy_in(sum_at, &sum, sizeof sum);
    BOTH(gpu->sumsq(gpu, n, g.at, sum_at), cpu->sumsq(cpu, n, g.host, &sum));
    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "sumsq");
    sp_cuda_must(cudaMemcpy(&got, sum_at, sizeof got, cudaMemcpyDeviceToHost), "sum");
    assert_true(fabs(got / sum - 1) < 1e-12);
    BOTH(gpu->add_f32(gpu, n, g.at, y.at), cpu->add_f32(cpu, n, g.host, y.host));
    check("add_f32", &y);
    BOTH(gpu->add_to_f32(gpu, n, way.at, home.at), cpu->add_f32(cpu, n, way.host, home.host));
    BOTH(gpu->add_at_random(gpu, n, 7, g.at, way.at), cpu->add_f32(cpu, n, g.host, way.host));
    check("add_to_f32", &home), check("add_at_random", &way);
    BOTH(gpu->adamw(gpu, &hp,
                    &(struct sp_adamw_arrays){
                        .n = n, .w = w.at, .g = g.at, .m = m.at, .v = v.at, .low = low.at}),
         cpu->adamw(cpu, &hp,
                    &(struct sp_adamw_arrays){
                        .n = n, .w = w.host, .g = g.host, .m = m.host, .v = v.host}));
    memcpy(low.host, w.host, n * sizeof(float));
    memcpy(again.host, w.host, n * sizeof(float));
    gpu->round(gpu, n, w.at, again.at);
    check("adamw rounded w", &low), check("round", &again);
    check("adamw w", &w), check("adamw m", &m), check("adamw v", &v), check("adamw g", &g);
    cudaFree(sum_at);
}

static void all(void)
{
    const int whole[] = {64}, slices[] = {24, 40, 33}, longer[] = {512, 512};
    const int many[] = {300, 700};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        products(&sizes[i]);
        norms(&sizes[i], false), norms(&sizes[i], true);
        mlp(&sizes[i]);
    }
    attend(2, 4, 4, 64, 64, 1, whole);
    attend(1, 4, 2, 24, 33, 3, slices);
    attend(1, 8, 8, 128, 512, 2, longer);
    attend(2, 8, 2, 128, 33, 3, slices), attend(2, 6, 3, 64, 33, 3, slices);
    attend(2, 8, 2, 128, 700, 2, many), attend(2, 6, 3, 64, 700, 2, many),
        attend(1, 4, 4, 64, 700, 2, many);
    tokens(2, 13, 24, 37, 5);
    tokens(1, 128, 256, 1000, 64);
    update(1001), update(1 << 20);
}

static void test_f32(void **state)
{
    (void)state;
    gpu = sp_cuda_backend(cuda, SP_F32);
    all();
}

static void test_bf16(void **state)
{
    (void)state;
    gpu = sp_cuda_backend(cuda, SP_BF16);
    all();
}

/* More scores than cuDNN takes at once: they are computed some heads, then some queries at a
 * time. */
static void test_parts(void **state)
{
    const int whole[] = {1024}, slices[] = {300, 99, 625};
    struct sp_cuda *all_at_once = cuda;

    (void)state;
    setenv("SP_CUDA_ATTENTION_MIB", "1", 1), setenv("SP_CUDA_FLASH3", "0", 1);
    assert_int_equal(sp_cuda_create(0, all_at_once->stream, &cuda), 0);
    unsetenv("SP_CUDA_ATTENTION_MIB"), unsetenv("SP_CUDA_FLASH3");
    gpu = sp_cuda_backend(cuda, SP_BF16);
    attend(2, 4, 4, 64, 128, 1, whole);
    attend(1, 4, 4, 64, 1024, 1, whole);
    attend(2, 8, 2, 128, 625, 3, slices);
    sp_cuda_destroy(cuda);
    cuda = all_at_once;
}

/* A sum that races shows in its bits. */
static void test_same_bits(void **state)
{
    enum { T = 512, H = 768, TIMES = 5 };
    struct both x, dy, first = {0};

    (void)state;
    gpu = sp_cuda_backend(cuda, SP_BF16);
    x = filled(T * H, 1, false), dy = filled(T * H, 2, false);
    for (int i = 0; i < TIMES; i++) {
        struct both dw = filled(H * H, 3, true), db = filled(H, 4, true);
        float *got;

        gpu->linear_dw(gpu, &(struct sp_linear){.T = T, .in = H, .out = H}, x.at, dy.at, dw.at,
                       db.at);
        got = download(&dw);
        if (i == 0)
            first = dw, memcpy(first.host, got, sizeof(float) * H * H);
        else
            assert_memory_equal(first.host, got, sizeof(float) * H * H);
        free(got);
        if (i)
            drop(&dw);
        drop(&db);
    }
    drop(&first), drop(&x), drop(&dy);
}

/* The same bits from attention's backward: every tile of keys adds to dQ, and every head that
 * shares keys adds to dK and dV. */
static void same_gradients(int kv_heads, int d)
{
    enum { LEN = 1500, HEADS = 8, TIMES = 8 };
    const int len = LEN;
    struct sp_attention at = {.batch = 1,
                              .heads = HEADS,
                              .kv_heads = kv_heads,
                              .head_dim = d,
                              .scale = 0.1f,
                              .q_len = LEN,
                              .n_kv = 1,
                              .kv_len = &len};
    size_t n = (size_t)(LEN * HEADS * d), m = (size_t)(LEN * 2 * kv_heads * d);
    struct both q = filled(n, 1, false), d_o = filled(n, 2, false), o = empty(n, false);
    struct both kv = filled(m, 3, false), lse = empty((size_t)(HEADS * LEN), true);
    const void *keys[] = {kv.at};
    float *first[2] = {NULL, NULL};

    gpu->attention(gpu, &at, q.at, keys, o.at, lse.at);
    for (int i = 0; i < TIMES; i++) {
        struct both dq = empty(n, false), dkv = empty(m, false);
        void *gradients[] = {dkv.at};
        float *got[2];

        gpu->attention_bwd(gpu, &at,
                           &(struct sp_attention_bwd){.q = q.at,
                                                      .kv = keys,
                                                      .o = o.at,
                                                      .lse = lse.at,
                                                      .d_o = d_o.at,
                                                      .dq = dq.at,
                                                      .dkv = gradients,
                                                      .first = true});
        got[0] = download(&dq), got[1] = download(&dkv);
        for (int j = 0; j < 2; j++) {
            if (first[j])
                assert_memory_equal(first[j], got[j], sizeof(float) * (j ? m : n));
            else
                first[j] = got[j], got[j] = NULL;
            free(got[j]);
        }
        drop(&dq), drop(&dkv);
    }
    free(first[0]), free(first[1]);
    drop(&q), drop(&d_o), drop(&o), drop(&kv), drop(&lse);
}

static void test_same_gradients(void **state)
{
    (void)state;
    gpu = sp_cuda_backend(cuda, SP_BF16);
    same_gradients(8, 64), same_gradients(2, 64), same_gradients(8, 128), same_gradients(2, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_gradients),
    };
    cudaStream_t stream;
    int devices = 0, failed;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (sp_cuda_check(0))
        return 77;
    cpu = sp_cpu_backend(SP_F32);
    sp_cuda_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    if (sp_cuda_create(0, stream, &cuda))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    sp_cuda_destroy(cuda);
    return failed;
}
