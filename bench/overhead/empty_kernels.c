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
void sp_gemm(const struct sp_gemm *g, const float *A, const float *B, float *C)
{
    UNUSED g, UNUSED A, UNUSED B, UNUSED C;
}

const char *sp_gemm_backend(void)
{
    return "none";
}

void sp_linear(const struct sp_linear *l, const float *x, float *y)
{
    UNUSED l, UNUSED x, UNUSED y;
}

void sp_linear_add(const struct sp_linear *l, const float *x, const float *residual, float *y)
{
    UNUSED l, UNUSED x, UNUSED residual, UNUSED y;
}

void sp_linear_dx(const struct sp_linear *l, const float *dy, float *dx, bool accumulate)
{
    UNUSED l, UNUSED dy, UNUSED dx, UNUSED accumulate;
}

/* A weight gradient task has exactly one product from h to h: of q, or of the attention output. */
void sp_linear_dw(const struct sp_linear *l, const float *x, const float *dy, float *dw,
                  float *dbias)
{
    UNUSED x, UNUSED dy, UNUSED dw, UNUSED dbias;
    if (l->in == l->out)
        task();
}

void sp_cpu_norm(const struct sp_backend *k, const struct sp_norm *n, const void *x, void *y,
                 float *stats)
{
    UNUSED k, UNUSED n, UNUSED x, UNUSED y, UNUSED stats;
    task();
}

void sp_cpu_norm_apply(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                       const float *stats, void *y)
{
    UNUSED k, UNUSED n, UNUSED x, UNUSED stats, UNUSED y;
}

void sp_cpu_norm_bwd(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                     const float *stats, const struct sp_norm_bwd *g)
{
    UNUSED k, UNUSED n, UNUSED x, UNUSED stats, UNUSED g;
    if (!head_running)
        task();
    head_running = false;
}

void sp_cpu_rope(const struct sp_backend *k, const struct sp_rotation *r, bool inverse, void *x)
{
    UNUSED k, UNUSED r, UNUSED inverse, UNUSED x;
}

void sp_cpu_attention(const struct sp_backend *k, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse)
{
    UNUSED k, UNUSED at, UNUSED q, UNUSED kv, UNUSED o, UNUSED lse;
    task();
}

void sp_cpu_attention_bwd(const struct sp_backend *k, const struct sp_attention *at,
                          const struct sp_attention_bwd *b)
{
    UNUSED k, UNUSED at, UNUSED b;
    task();
}

void sp_cpu_activation(const struct sp_backend *k, enum sp_activation act, size_t n, const void *u,
                       void *y)
{
    UNUSED k, UNUSED act, UNUSED n, UNUSED u, UNUSED y;
}

void sp_activation(enum sp_activation act, size_t n, const float *u, float *y)
{
    UNUSED act, UNUSED n, UNUSED u, UNUSED y;
}

void sp_activation_bwd(enum sp_activation act, size_t n, const float *u, const float *dy, float *du)
{
    UNUSED act, UNUSED n, UNUSED u, UNUSED dy, UNUSED du;
}

void sp_cpu_gated(const struct sp_backend *k, const struct sp_gated *g, const void *u, void *y)
{
    UNUSED k, UNUSED g, UNUSED u, UNUSED y;
}

void sp_cpu_gated_bwd(const struct sp_backend *k, const struct sp_gated *g, const void *u,
                      const void *dy, void *du)
{
    UNUSED k, UNUSED g, UNUSED u, UNUSED dy, UNUSED du;
}

void sp_add(size_t n, const float *x, float *y)
{
    UNUSED n, UNUSED x, UNUSED y;
}

void sp_cpu_add(const struct sp_backend *k, size_t n, const void *x, void *y)
{
    UNUSED k, UNUSED n, UNUSED x, UNUSED y;
}

void sp_cpu_embed(const struct sp_backend *k, const struct sp_embed *e, const void *table,
                  const void *positions, void *x)
{
    UNUSED k, UNUSED e, UNUSED table, UNUSED positions, UNUSED x;
    task();
}

void sp_cpu_embed_bwd(const struct sp_backend *k, const struct sp_embed *e, const void *dx,
                      float *dtable, float *dpositions)
{
    UNUSED k, UNUSED e, UNUSED dx, UNUSED dtable, UNUSED dpositions;
    task();
}

void sp_cpu_cross_entropy(const struct sp_backend *k, const struct sp_logits *l, double *loss,
                          void *dx, float *dw)
{
    UNUSED k, UNUSED l, UNUSED loss, UNUSED dx, UNUSED dw;
    head_running = true;
}

void sp_sumsq(size_t n, const float *g, double *sum)
{
    UNUSED n, UNUSED g, UNUSED sum;
}

void sp_cpu_adamw(const struct sp_backend *k, const struct sp_adamw *hp,
                  const struct sp_adamw_arrays *a)
{
    UNUSED k, UNUSED hp, UNUSED a;
}

double sp_flops_linear(double T, double in, double out)
{
    return 2 * T * in * out;
}

double sp_flops_attention(const struct sp_attention *at)
{
    return at->q_len;
}
