/*
 * Every kernel of kernels/kernels.h without its mathematics, so that the engine can be timed
 * alone. Each task spins once, for bench_spin_us microseconds, in the one kernel it calls once.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "overhead.h"
#include <time.h>

double bench_spin_us;
static __thread bool head_running; /* the head calls two of the kernels that stand for a task */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void task(void)
{
    double end;

    if (bench_spin_us <= 0)
        return;
    for (end = now_us() + bench_spin_us; now_us() < end;)
        ;
}

#define UNUSED (void)
void sp_gemm(bool trans_a, bool trans_b, int m, int n, int k, float alpha, const float *A, int lda,
             const float *B, int ldb, float beta, float *C, int ldc)
{
    UNUSED trans_a, UNUSED trans_b, UNUSED m, UNUSED n, UNUSED k, UNUSED alpha, UNUSED A;
    UNUSED lda, UNUSED B, UNUSED ldb, UNUSED beta, UNUSED C, UNUSED ldc;
}

const char *sp_gemm_backend(void)
{
    return "none";
}

void sp_linear(int T, int in, int out, const float *x, const float *w, const float *bias, float *y,
               int ldy)
{
    UNUSED T, UNUSED in, UNUSED out, UNUSED x, UNUSED w, UNUSED bias, UNUSED y, UNUSED ldy;
}

void sp_linear_add(int T, int in, int out, const float *x, const float *w, const float *bias,
                   const float *residual, float *y)
{
    UNUSED T, UNUSED in, UNUSED out, UNUSED x, UNUSED w, UNUSED bias, UNUSED residual, UNUSED y;
}

void sp_linear_dx(int T, int in, int out, const float *dy, int lddy, const float *w, float *dx,
                  bool accumulate)
{
    UNUSED T, UNUSED in, UNUSED out, UNUSED dy, UNUSED lddy, UNUSED w, UNUSED dx;
    UNUSED accumulate;
}

/* A weight gradient task has exactly one product from h to h: of q, or of the attention output. */
void sp_linear_dw(int T, int in, int out, const float *x, const float *dy, int lddy, float *dw,
                  float *dbias)
{
    UNUSED T, UNUSED x, UNUSED dy, UNUSED lddy, UNUSED dw, UNUSED dbias;
    if (in == out)
        task();
}

void sp_norm(bool rms, int T, int h, float eps, const float *x, const float *gain,
             const float *bias, float *y, float *stats)
{
    UNUSED rms, UNUSED T, UNUSED h, UNUSED eps, UNUSED x, UNUSED gain, UNUSED bias, UNUSED y;
    UNUSED stats;
    task();
}

void sp_norm_apply(int T, int h, const float *x, const float *stats, const float *gain,
                   const float *bias, float *y)
{
    UNUSED T, UNUSED h, UNUSED x, UNUSED stats, UNUSED gain, UNUSED bias, UNUSED y;
}

void sp_norm_bwd(bool rms, int T, int h, const float *x, const float *stats, const float *gain,
                 const float *dy, const float *dres, float *dx, float *dgain, float *dbias)
{
    UNUSED rms, UNUSED T, UNUSED h, UNUSED x, UNUSED stats, UNUSED gain, UNUSED dy, UNUSED dres;
    UNUSED dx, UNUSED dgain, UNUSED dbias;
    if (!head_running)
        task();
    head_running = false;
}

void sp_rope(int batch, int len, int heads, int d, int ld, int pos0, const struct sp_rope *rope,
             bool inverse, float *x)
{
    UNUSED batch, UNUSED len, UNUSED heads, UNUSED d, UNUSED ld, UNUSED pos0, UNUSED rope;
    UNUSED inverse, UNUSED x;
}

void sp_cpu_attention(enum sp_dtype type, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse)
{
    UNUSED type, UNUSED at, UNUSED q, UNUSED kv, UNUSED o, UNUSED lse;
    task();
}

void sp_cpu_attention_bwd(enum sp_dtype type, const struct sp_attention *at, const void *q,
                          const void *const *kv, const void *o, const float *lse, const void *d_o,
                          void *dq, void *const *dkv, bool first)
{
    UNUSED type, UNUSED at, UNUSED q, UNUSED kv, UNUSED o, UNUSED lse, UNUSED d_o, UNUSED dq;
    UNUSED dkv, UNUSED first;
    task();
}

void sp_activation(enum sp_activation act, size_t n, const float *u, float *y)
{
    UNUSED act, UNUSED n, UNUSED u, UNUSED y;
}

void sp_activation_bwd(enum sp_activation act, size_t n, const float *u, const float *dy, float *du)
{
    UNUSED act, UNUSED n, UNUSED u, UNUSED dy, UNUSED du;
}

void sp_gated(enum sp_activation act, int T, int f, const float *u, float *y)
{
    UNUSED act, UNUSED T, UNUSED f, UNUSED u, UNUSED y;
}

void sp_gated_bwd(enum sp_activation act, int T, int f, const float *u, const float *dy, float *du)
{
    UNUSED act, UNUSED T, UNUSED f, UNUSED u, UNUSED dy, UNUSED du;
}

void sp_add(size_t n, const float *x, float *y)
{
    UNUSED n, UNUSED x, UNUSED y;
}

void sp_embed(int batch, int len, int h, int pos0, const int32_t *ids, const float *table,
              const float *positions, float *x)
{
    UNUSED batch, UNUSED len, UNUSED h, UNUSED pos0, UNUSED ids, UNUSED table, UNUSED positions;
    UNUSED x;
    task();
}

void sp_embed_bwd(int batch, int len, int h, int pos0, const int32_t *ids, const float *dx,
                  float *dtable, float *dpositions)
{
    UNUSED batch, UNUSED len, UNUSED h, UNUSED pos0, UNUSED ids, UNUSED dx, UNUSED dtable;
    UNUSED dpositions;
    task();
}

double sp_row_loss(int V, int target, bool gradient, float scale, float *z)
{
    UNUSED V, UNUSED target, UNUSED gradient, UNUSED scale, UNUSED z;
    return 0;
}

void sp_cross_entropy(int T, int h, int V, int rows, const float *x, const float *w,
                      const int32_t *targets, float scale, double *loss, float *dx, float *dw,
                      float *scratch)
{
    UNUSED T, UNUSED h, UNUSED V, UNUSED rows, UNUSED x, UNUSED w, UNUSED targets, UNUSED scale;
    UNUSED loss, UNUSED dx, UNUSED dw, UNUSED scratch;
    head_running = true;
}

void sp_sumsq(size_t n, const float *g, double *sum)
{
    UNUSED n, UNUSED g, UNUSED sum;
}

void sp_adamw(size_t n, const struct sp_adamw *hp, float *w, float *g, float *m, float *v)
{
    UNUSED n, UNUSED hp, UNUSED w, UNUSED g, UNUSED m, UNUSED v;
}

double sp_flops_linear(double T, double in, double out)
{
    return 2 * T * in * out;
}

double sp_flops_attention(const struct sp_attention *at)
{
    return at->q_len;
}
