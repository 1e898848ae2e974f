/*
 * Rate of the kernels that multiply matrices, at the sizes of GPT-2 124M, one sequence of 1024 tokens, beside
 * the rate of the product measured in the same run (streams.c has the others):
 *
 *   kernels [--quick] [threads...]        (default: 1 2; --quick: few tokens, each once, to see that it runs)
 *
 * Attention also at 4096 tokens with 8 heads of 64, whose rows lie 4 KiB apart, at heads of 128, and in
 * bf16, with its share of the time in f32.
 *
 * Then products in bf16 beside those in f32, as the layers of a model call them.
 *
 * GFLOP/s, attention counting the visible half. Best of several runs.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "kernels/backend.h"
#include "kernels/kernels.h"
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 768, F = 3072, V = 50257, A = 12, D = 64, ROWS = 256 };
static int T = 1024, runs = 5;
static double least_s = 0.1;

static float *filled(size_t n)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) & ~(size_t)63);
    uint32_t s = (uint32_t)n | 1;

    if (!x) {
        fprintf(stderr, "kernels: no memory for %zu floats\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

static double gemm_rate;

static void report(const char *name, double seconds, double flops)
{
    printf("  %-22s %9.3f ms %8.1f GFLOP/s %5.0f %% of the product\n", name, seconds * 1e3,
           flops / seconds * 1e-9, 100 * flops / seconds / gemm_rate);
}

/* Best time of `call` in at least 5 runs and 0.1 s. */
#define BEST(best, call)                                                                           \
    do {                                                                                           \
        double spent_ = 0, took_;                                                                  \
        (best) = 1e9;                                                                              \
        for (int run_ = 0; run_ < runs || spent_ < least_s; run_++) {                              \
            took_ = omp_get_wtime();                                                               \
            call;                                                                                  \
            took_ = omp_get_wtime() - took_;                                                       \
            spent_ += took_;                                                                       \
            (best) = took_ < (best) ? took_ : (best);                                              \
        }                                                                                          \
    } while (0)

#define FLOPS(name, flops, call)                                                                   \
    do {                                                                                           \
        double best_;                                                                              \
        BEST(best_, call);                                                                         \
        report(name, best_, flops);                                                                \
    } while (0)

static void products(float *x, float *y, float *w, float *dw, float *bias, float *scratch)
{
    double f = sp_flops_linear(T, H, F), best, loss = 0;
    int32_t target[T];

    for (int t = 0; t < T; t++)
        target[t] = (t * 977) % V;
    BEST(best,
         sp_gemm(
             &(struct sp_gemm){
                 .trans_b = true, .m = T, .n = F, .k = H, .alpha = 1, .lda = H, .ldb = H, .ldc = F},
             x, w, y));
    gemm_rate = f / best;
    report("gemm", best, f);
    FLOPS("linear + bias", f,
          sp_linear(&(struct sp_linear){.T = T, .in = H, .out = F, .w = w, .bias = bias}, x, y));
    FLOPS("linear dx", f,
          sp_linear_dx(&(struct sp_linear){.T = T, .in = H, .out = F, .w = w}, y, x, false));
    FLOPS("linear dw + dbias", f,
          sp_linear_dw(&(struct sp_linear){.T = T, .in = H, .out = F}, x, y, dw, bias));
    FLOPS("cross-entropy", 3 * sp_flops_linear(T, H, V),
          sp_cross_entropy(&(struct sp_logits){.T = T,
                                               .h = H,
                                               .V = V,
                                               .rows = ROWS,
                                               .x = x,
                                               .w = w,
                                               .targets = target,
                                               .scale = 1e-3f,
                                               .scratch = scratch},
                           &loss, y, dw));
}

/* The arrays that a layer's products read and write, in one type. */
struct layer {
    const struct sp_backend *k;
    void *x, *g, *w, *bias, *y, *u, *scratch;
    float *dw, *dbias;
};

static void *typed(const struct sp_backend *k, size_t n, float *from)
{
    void *x = aligned_alloc(64, (n * sp_dtype_bytes(k->dtype) + 63) & ~(size_t)63);

    if (!x) {
        fprintf(stderr, "kernels: no memory for %zu elements\n", n);
        exit(1);
    }
    k->round(k, n, from, x);
    return x;
}

static struct layer layer_in(enum sp_dtype type, float *values, float *dw, float *dbias)
{
    const struct sp_backend *k = sp_cpu_backend(type);
    size_t rows = (size_t)T * H, wide = (size_t)T * F, table = (size_t)V * H;

    return (struct layer){.k = k,
                          .x = typed(k, rows, values),
                          .g = typed(k, wide, values + 1),
                          .w = typed(k, table, values + 2),
                          .bias = typed(k, F, values + 3),
                          .y = typed(k, wide, values + 4),
                          .u = typed(k, wide, values + 5),
                          .scratch = typed(k, (size_t)ROWS * (size_t)sp_logits_ld(V), values),
                          .dw = dw,
                          .dbias = dbias};
}

/* Best time of `call` on l in f32, then in bf16. */
#define BOTH(name, flops, call)                                                                    \
    do {                                                                                           \
        double best_[2];                                                                           \
        for (int t_ = 0; t_ < 2; t_++) {                                                           \
            const struct layer *l = &layers[t_];                                                   \
            BEST(best_[t_], l->k->call);                                                           \
        }                                                                                          \
        printf("  %-22s %9.3f ms %8.1f GFLOP/s, in f32 %8.1f: %.2f of its time\n", name,           \
               best_[1] * 1e3, (flops) / best_[1] * 1e-9, (flops) / best_[0] * 1e-9,               \
               best_[1] / best_[0]);                                                               \
    } while (0)

/* The products of an MLP. */
#define UP(...) ((struct sp_linear){.T = T, .in = H, .out = F, .w = l->w, __VA_ARGS__})
#define DOWN(...) ((struct sp_linear){.T = T, .in = F, .out = H, .w = l->w, __VA_ARGS__})

static void products_bf16(float *values, float *dw, float *dbias)
{
    struct layer layers[2] = {layer_in(SP_F32, values, dw, dbias),
                              layer_in(SP_BF16, values, dw, dbias)};
    double f = sp_flops_linear(T, H, F), loss = 0;
    int32_t ids[T];

    for (int t = 0; t < T; t++)
        ids[t] = (t * 977) % V;
    printf("bf16: %s\n", sp_bf16_unit_name(sp_cpu_bf16_unit()));
    BOTH("linear + bias", f, linear(l->k, &UP(.bias = l->bias), l->x, l->y));
    BOTH("linear + bias, gelu", f,
         linear_act(l->k, &UP(.bias = l->bias), SP_GELU_TANH, l->x, l->u, l->y));
    BOTH("linear + residual", f, linear_add(l->k, &DOWN(.bias = l->bias), l->g, l->x, l->y));
    BOTH("linear dx", f, linear_dx(l->k, &UP(), l->g, l->y, false));
    BOTH("linear dx, gelu", f, linear_dx_act(l->k, &DOWN(), SP_GELU_TANH, l->x, l->u, l->y));
    BOTH("linear dw + dbias", f, linear_dw(l->k, &UP(), l->x, l->g, l->dw, l->dbias));
    BOTH("cross-entropy", 3 * sp_flops_linear(T, H, V),
         cross_entropy(l->k,
                       &(struct sp_logits){.T = T,
                                           .h = H,
                                           .V = V,
                                           .rows = ROWS,
                                           .x = l->x,
                                           .w = l->w,
                                           .targets = ids,
                                           .scale = 1e-3f,
                                           .scratch = l->scratch},
                       &loss, l->y, l->dw));
    for (int t = 0; t < 2; t++) {
        free(layers[t].x), free(layers[t].g), free(layers[t].w), free(layers[t].bias);
        free(layers[t].y), free(layers[t].u), free(layers[t].scratch);
    }
}

/* Seconds of a forward and of a backward. */
struct attention_time {
    double forward, backward;
};

static void *in_type(enum sp_dtype type, size_t n)
{
    float *x = filled(n);

    for (size_t i = 0; i < n && type == SP_BF16; i++)
        ((uint16_t *)(void *)x)[i] = sp_bf16(x[i]);
    return x;
}

static struct attention_time time_attention(enum sp_dtype type, const struct sp_attention *at)
{
    const struct sp_backend *k = sp_cpu_backend(type);
    size_t n = (size_t)at->q_len * (size_t)at->heads * (size_t)at->head_dim;
    void *q = in_type(type, n), *kv = in_type(type, 2 * n), *o = in_type(type, n);
    void *d_o = in_type(type, n), *dq = in_type(type, n), *dkv = in_type(type, 2 * n);
    float *lse = filled((size_t)at->q_len * (size_t)at->heads);
    const void *slices[1] = {kv};
    void *dslices[1] = {dkv};
    struct attention_time t;

    BEST(t.forward, k->attention(k, at, q, slices, o, lse));
    BEST(t.backward, k->attention_bwd(k, at,
                                      &(struct sp_attention_bwd){.q = q,
                                                                 .kv = slices,
                                                                 .o = o,
                                                                 .lse = lse,
                                                                 .d_o = d_o,
                                                                 .dq = dq,
                                                                 .dkv = dslices,
                                                                 .first = true}));
    free(q), free(kv), free(o), free(d_o), free(dq), free(dkv), free(lse);
    return t;
}

static void attention(int len, int heads, int d)
{
    const struct sp_attention at = {.batch = 1,
                                    .heads = heads,
                                    .kv_heads = heads,
                                    .head_dim = d,
                                    .scale = 1 / sqrtf((float)d),
                                    .q_len = len,
                                    .n_kv = 1,
                                    .kv_len = &len};
    double f = sp_flops_attention(&at);
    struct attention_time wide = time_attention(SP_F32, &at), low = time_attention(SP_BF16, &at);

    printf("  attention, %d tokens, %d heads of %d\n", len, heads, d);
    report("  f32", wide.forward, f);
    report("  f32 backward", wide.backward, 2.5 * f);
    report("  bf16", low.forward, f);
    report("  bf16 backward", low.backward, 2.5 * f);
    printf("    bf16 in %.2f of the time of f32 (forward %.2f, backward %.2f)\n",
           (low.forward + low.backward) / (wide.forward + wide.backward),
           low.forward / wide.forward, low.backward / wide.backward);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && !strcmp(argv[1], "--quick");
    int from = quick ? 2 : 1;
    size_t table = (size_t)V * H;
    float *x = filled((size_t)T * F), *y = filled((size_t)T * F);
    float *w = filled(table), *u = filled(table);
    float *scratch = filled((size_t)ROWS * V), *bias = filled(F);
    float *random = filled(table + ROWS * 8);
    int chosen[] = {1, 2};

    if (quick)
        T = 64, runs = 1, least_s = 0;
    printf("%s, T=%d h=%d f=%d V=%d a=%d d=%d\n", sp_gemm_backend(), T, H, F, V, A, D);
    for (int i = from; i < (argc > from ? argc : from + 2); i++) {
        int threads = argc > from ? atoi(argv[i]) : chosen[i - from];

        if (threads < 1) {
            fprintf(stderr, "kernels: '%s' is not a number of threads\n", argv[i]);
            return 2;
        }
        omp_set_num_threads(threads);
        printf("%d thread%s\n", threads, threads > 1 ? "s" : "");
        products(x, y, w, u, bias, scratch);
        attention(T, A, D);
        attention(4 * T, 8, 64);
        attention(T, 6, 128);
        products_bf16(random, u, bias);
    }
    free(x), free(y), free(w), free(u), free(scratch), free(bias), free(random);
    return 0;
}
