/* Matrix products, by oneDNN or by a CBLAS. Both know to stay on one thread inside a region. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>

#if defined(HAVE_DNNL)
#include <oneapi/dnnl/dnnl.h>

static void product(const struct sp_gemm *g, const float *A, const float *B, float *C)
{
    dnnl_status_t status;

    sp_team_ensure();
    status = dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k, g->alpha,
                        A, g->lda, B, g->ldb, g->beta, C, g->ldc);
    SP_NEED(status != dnnl_out_of_memory, "gemm: no memory for a product of %d x %d x %d", g->m,
            g->n, g->k);
    if (status != dnnl_success) {
        sp_error(EINVAL, "gemm: dnnl_sgemm of %d x %d x %d (ld %d, %d, %d) returned %d", g->m, g->n,
                 g->k, g->lda, g->ldb, g->ldc, (int)status);
        abort();
    }
}

const char *sp_gemm_backend(void)
{
    static char name[32];
    const dnnl_version_t *v = dnnl_version();

    snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}

#elif defined(HAVE_CBLAS)
#include <cblas.h>

/* OpenBLAS alone has these; its own threads know nothing of OpenMP teams. */
extern void openblas_set_num_threads(int threads) __attribute__((weak));
extern char *openblas_get_config(void) __attribute__((weak));

__attribute__((constructor)) static void leave_threads_to_us(void)
{
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
}

static void product_of_thread(const struct sp_gemm *g, int m, int n, const float *A, const float *B,
                              float *C)
{
    cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
                g->trans_b ? CblasTrans : CblasNoTrans, m, n, g->k, g->alpha, A, g->lda, B, g->ldb,
                g->beta, C, g->ldc);
}

/* The library computes on one thread; the team shares the larger side of C. */
static void product(const struct sp_gemm *g, const float *A, const float *B, float *C)
{
#pragma omp parallel if (!omp_in_parallel() && (double)g->m * g->n * g->k > 1e5)
    {
        size_t lo, hi;

        if (g->m >= g->n) {
            sp_team_share((size_t)g->m, 16, &lo, &hi);
            if (lo < hi)
                product_of_thread(g, (int)(hi - lo), g->n,
                                  A + lo * (g->trans_a ? 1 : (size_t)g->lda), B,
                                  C + lo * (size_t)g->ldc);
        } else {
            sp_team_share((size_t)g->n, 16, &lo, &hi);
            if (lo < hi)
                product_of_thread(g, g->m, (int)(hi - lo), A,
                                  B + lo * (g->trans_b ? (size_t)g->ldb : 1), C + lo);
        }
    }
}

const char *sp_gemm_backend(void)
{
    return openblas_get_config ? openblas_get_config() : "CBLAS";
}

#else
#error "the kernels need oneDNN (HAVE_DNNL) or a CBLAS (HAVE_CBLAS)"
#endif

void sp_gemm(const struct sp_gemm *g, const float *A, const float *B, float *C)
{
    if (g->m <= 0 || g->n <= 0)
        return;
    if (g->k > 0) {
        product(g, A, B, C);
        return;
    }
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            float *c = C + (size_t)i * (size_t)g->ldc + (size_t)j;

            *c = g->beta == 0 ? 0 : g->beta * *c;
        }
}
