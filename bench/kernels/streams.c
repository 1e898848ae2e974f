/*
 * Rate of every kernel that streams through memory, in f32 and in bf16, beside the rate at which
 * plain loads and stores go through the same arrays in the same run:
 *
 *   streams [--cached|--quick] [threads...]        (default: 1 2; --quick: each once, to see that it runs)
 *
 * Each array counts once per read and once per write, as the kernel's equations use it. The plain
 * loop reads and writes as many arrays, of the same bytes, in place where the kernel is. Arrays are
 * larger than a cache; --cached takes GPT-2 124M with 1024 tokens instead, whose arrays are not.
 * Best of several runs.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A few arrays that all kernels share: `a` to `d` of `bytes` bytes. */
struct arena {
    int T, h, f, V;
    size_t bytes;
    char *a, *b, *c, *d;
    int32_t *ids;
    float *stats, *gain;
};

static const struct sp_backend *k;
static int runs = 5;
static double least_s = 0.15;

static void *memory(size_t bytes)
{
    char *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

    if (!p) {
        fprintf(stderr, "streams: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* Small numbers in either type: of each pair of bytes, the upper is 0x3d to 0x3f, with any sign. */
static void fill(size_t bytes, char *p)
{
    uint32_t s = 1;

    for (size_t i = 0; i + 1 < bytes; i += 2) {
        s = s * 1664525u + 1013904223u;
        p[i] = (char)(s >> 24);
        p[i + 1] = (char)(0x3d + (s >> 20) % 3 + (s >> 12 & 0x80));
    }
}

static size_t share(size_t n, size_t *from)
{
    size_t team = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();

    *from = n / 64 * me / team * 64;
    return n / 64 * (me + 1) / team * 64 - *from;
}

/* Reads `in` arrays and writes `out`, the last ones of `at`, n floats each. */
SP_INLINE float touch_loop(int in, int out, int arrays, size_t n, float *const at[])
{
    float *p[9], sum = 0;

    memcpy(p, at, (size_t)arrays * sizeof *at);
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        float x = 0;

        for (int r = 0; r < in; r++)
            x += p[r][i];
        for (int w = arrays - out; w < arrays; w++)
            p[w][i] = out > 1 ? x + (float)w : x;
        if (!out)
            sum += x;
    }
    return sum;
}

SP_CLONES static float touch(int in, int out, int arrays, size_t n, float *const at[])
{
    switch (in * 100 + out * 10 + arrays) {
    case 101: /* a sum */
        return touch_loop(1, 0, 1, n, at);
    case 111: /* in place */
        return touch_loop(1, 1, 1, n, at);
    case 112: /* a copy */
        return touch_loop(1, 1, 2, n, at);
    case 212: /* += */
        return touch_loop(2, 1, 2, n, at);
    case 213:
        return touch_loop(2, 1, 3, n, at);
    case 313:
        return touch_loop(3, 1, 3, n, at);
    case 323:
        return touch_loop(3, 2, 3, n, at);
    case 325:
        return touch_loop(3, 2, 5, n, at);
    case 444:
        return touch_loop(4, 4, 4, n, at);
    default:
        abort();
    }
}

static float sink;

/* The memory accesses of a kernel: `in` reads and `out` writes of `arrays` arrays of `bytes`
 * bytes. */
struct pattern {
    int in, out, arrays;
    size_t bytes;
};

static void plain(const struct arena *m, const struct pattern *p)
{
    /* As far apart as they fit, in two of the arrays if they do not fit in one. */
    float *at[9], total = 0;

    for (int i = 0; i < p->arrays; i++) {
        char *const base[] = {m->a, m->b, m->c, m->d};

        at[i] = (float *)(base[i % 4] + (i < 4 ? 0 : m->bytes / 2 / 64 * 64));
    }
#pragma omp parallel reduction(+ : total)
    {
        size_t from, n = share(p->bytes / 4, &from);
        float *mine[9];

        for (int i = 0; i < p->arrays; i++)
            mine[i] = at[i] + from;
        total += touch(p->in, p->out, p->arrays, n, mine);
    }
    sink += total;
}

/* Best times of `call` and of the plain loop, in turns, in at least 5 runs and 0.15 s. */
#define STREAM(name, in, out, arrays, n_bytes, call)                                               \
    do {                                                                                           \
        const struct pattern p_ = {in, out, arrays, n_bytes};                                      \
        double spent_ = 0, best_ = 1e9, floor_ = 1e9, t0_, t1_, t2_;                               \
        for (int run_ = 0; run_ < runs || spent_ < least_s; run_++) {                              \
            t0_ = omp_get_wtime();                                                                 \
            call;                                                                                  \
            t1_ = omp_get_wtime();                                                                 \
            plain(m, &p_);                                                                         \
            t2_ = omp_get_wtime();                                                                 \
            spent_ += t2_ - t0_;                                                                   \
            best_ = t1_ - t0_ < best_ ? t1_ - t0_ : best_;                                         \
            floor_ = t2_ - t1_ < floor_ ? t2_ - t1_ : floor_;                                      \
        }                                                                                          \
        report(name, (in + out) * (double)(n_bytes), best_, floor_);                               \
    } while (0)

static void report(const char *name, double bytes, double seconds, double floor)
{
    printf("  %-22s %9.3f ms %8.1f GB/s %5.0f %% of %.1f GB/s\n", name, seconds * 1e3,
           bytes / seconds * 1e-9, 100 * floor / seconds, bytes / floor * 1e-9);
}

static void rows(const struct arena *m)
{
    int T = m->T, h = m->h;
    size_t e = sp_dtype_bytes(k->dtype), n = (size_t)T * (size_t)h;
    float *dgain = m->gain + 2 * h, *dbias = m->gain + 3 * h;
    const struct sp_rope rope = {.theta = 1e4f};

    memset(m->gain, 0, 2 * (size_t)h * sizeof *m->gain);
    STREAM("layer norm", 1, 1, 2, n * e,
           k->norm(k,
                   &(struct sp_norm){
                       .T = T, .h = h, .eps = 1e-5f, .gain = m->gain, .bias = m->gain + h},
                   m->a, m->b, m->stats));
    STREAM("layer norm again", 1, 1, 2, n * e,
           k->norm_apply(k, &(struct sp_norm){.T = T, .h = h, .gain = m->gain, .bias = m->gain + h},
                         m->a, m->stats, m->b));
    STREAM("rms norm", 1, 1, 2, n * e,
           k->norm(k, &(struct sp_norm){.rms = true, .T = T, .h = h, .eps = 1e-5f, .gain = m->gain},
                   m->a, m->b, m->stats));
    STREAM("layer norm backward", 3, 1, 3, n * e,
           k->norm_bwd(k, &(struct sp_norm){.T = T, .h = h, .gain = m->gain}, m->a, m->stats,
                       &(struct sp_norm_bwd){
                           .dy = m->b, .dres = m->c, .dx = m->c, .dgain = dgain, .dbias = dbias}));
    STREAM("rms norm backward", 3, 1, 3, n * e,
           k->norm_bwd(
               k, &(struct sp_norm){.rms = true, .T = T, .h = h, .gain = m->gain}, m->a, m->stats,
               &(struct sp_norm_bwd){.dy = m->b, .dres = m->c, .dx = m->c, .dgain = dgain}));
    fill(n * e, m->c);
    STREAM("rope", 1, 1, 1, n * e,
           k->rope(k,
                   &(struct sp_rotation){
                       .batch = 1, .len = T, .heads = h / 64, .d = 64, .ld = h, .rope = &rope},
                   false, m->a));
    STREAM("add", 2, 1, 2, n * e, k->add(k, n, m->a, m->b));
    fill(n * e, m->b);
    STREAM("copy", 1, 1, 2, n * e, k->copy(k, n * e, m->a, m->b));
}

static void activations(const struct arena *m)
{
    size_t e = sp_dtype_bytes(k->dtype), n = (size_t)m->T * (size_t)m->f;

    STREAM("gelu", 1, 1, 2, n * e, k->act(k, SP_GELU_TANH, n, m->a, m->b));
    STREAM("gelu backward", 2, 1, 3, n * e,
           sp_cpu_activation_bwd(k, SP_GELU_TANH, n, m->a, m->b, m->c));
    STREAM("swiglu", 2, 1, 3, n * e / 2,
           k->gated(k, &(struct sp_gated){.act = SP_SILU, .T = m->T, .f = m->f / 2}, m->a, m->b));
    STREAM("swiglu backward", 3, 2, 5, n * e / 2,
           k->gated_bwd(k, &(struct sp_gated){.act = SP_SILU, .T = m->T, .f = m->f / 2}, m->a, m->b,
                        m->c));
}

static void tokens(const struct arena *m)
{
    size_t e = sp_dtype_bytes(k->dtype), n = (size_t)m->T * (size_t)m->h;

    STREAM("embed", 2, 1, 3, n * e,
           k->embed(k, &(struct sp_embed){.batch = 1, .len = m->T, .h = m->h, .ids = m->ids}, m->a,
                    m->b, m->c));
    /* dx in its type, two tables in f32: 1 + 4 arrays of f32, or as many bytes */
    STREAM("embed backward", 3, 2, 3, n * (e + 16) / 5,
           k->embed_bwd(k, &(struct sp_embed){.batch = 1, .len = m->T, .h = m->h, .ids = m->ids},
                        m->c, (float *)m->a, (float *)m->b));
}

static void parameters(const struct arena *m)
{
    const struct sp_adamw hp = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1.0f};
    size_t n = (size_t)m->V * (size_t)m->h;
    float *a = (float *)m->a, *b = (float *)m->b, *c = (float *)m->c, *d = (float *)m->d;
    double sum = 0;

    STREAM("sum of squares", 1, 0, 1, n * 4, k->sumsq(k, n, a, &sum));
    STREAM("adamw", 4, 4, 4, n * 4,
           k->adamw(k, &hp, &(struct sp_adamw_arrays){.n = n, .w = a, .g = b, .m = c, .v = d}));
    if (k->dtype != SP_BF16)
        return;
    /* The fifth array is half as wide: 34 bytes an element, not 32. */
    STREAM("adamw, bf16 weights", 4, 4, 4, n * 34 / 8,
           k->adamw(k, &hp,
                    &(struct sp_adamw_arrays){
                        .n = n, .w = a, .g = b, .m = c, .v = d, .low = m->d + m->bytes}));
    STREAM("round to bf16", 1, 1, 2, n * 3, k->round(k, n, a, b));
}

int main(int argc, char **argv)
{
    int from = 1, chosen[] = {1, 2};
    struct arena m = {.T = 4096, .h = 4096, .f = 8192, .V = 8192};

    if (argc > 1 && !strcmp(argv[1], "--cached")) {
        m.T = 1024, m.h = 768, m.f = 3072, m.V = 4096;
        from = 2;
    } else if (argc > 1 && !strcmp(argv[1], "--quick")) {
        m.T = 64, m.h = 64, m.f = 128, m.V = 64;
        runs = 1, least_s = 0, from = 2;
    }
    m.bytes = 4 * (size_t)m.T * (size_t)m.f;
    m.a = memory(2 * m.bytes), m.b = memory(2 * m.bytes), m.c = memory(2 * m.bytes);
    m.d = memory(2 * m.bytes);
    m.ids = memory((size_t)m.T * sizeof *m.ids);
    m.stats = memory(2 * (size_t)m.T * sizeof *m.stats);
    m.gain = memory(4 * (size_t)m.h * sizeof *m.gain);
    memset(m.gain, 0, 4 * (size_t)m.h * sizeof *m.gain);
    for (int t = 0; t < m.T; t++)
        m.ids[t] = (int)(t * 977L % (m.T < m.V ? m.T : m.V));
    printf("T=%d h=%d f=%d, %d parameters\n", m.T, m.h, m.f, m.V * m.h);
    for (int i = from; i < (argc > from ? argc : from + 2); i++) {
        int threads = argc > from ? atoi(argv[i]) : chosen[i - from];

        if (threads < 1) {
            fprintf(stderr, "streams: '%s' is not a number of threads\n", argv[i]);
            return 2;
        }
        omp_set_num_threads(threads);
        for (enum sp_dtype type = SP_F32; type < SP_ELEMENTS; type++) {
            k = sp_cpu_backend(type);
            printf("%s, %d thread%s\n", sp_dtype_name(type), threads, threads > 1 ? "s" : "");
            fill(m.bytes, m.a), fill(m.bytes, m.b), fill(m.bytes, m.c), fill(2 * m.bytes, m.d);
            rows(&m);
            activations(&m);
            tokens(&m);
            fill(m.bytes, m.a), fill(m.bytes, m.b), fill(m.bytes, m.c), fill(2 * m.bytes, m.d);
            parameters(&m);
        }
    }
    free(m.a), free(m.b), free(m.c), free(m.d), free(m.ids), free(m.stats), free(m.gain);
    return sink == 1.5f;
}
