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

static void product(bool trans_a, bool trans_b, int m, int n, int k, float alpha, const float *A,
                    int lda, const float *B, int ldb, float beta, float *C, int ldc)
{
    dnnl_status_t status;

    sp_team_ensure();
    status = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, A, lda, B, ldb,
                        beta, C, ldc);
    SP_NEED(status != dnnl_out_of_memory, "gemm: no memory for a product of %d x %d x %d", m, n, k);
    if (status != dnnl_success) {
        sp_error(EINVAL, "gemm: dnnl_sgemm of %d x %d x %d (ld %d, %d, %d) returned %d", m, n, k,
                 lda, ldb, ldc, (int)status);
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

static void piece(bool trans_a, bool trans_b, int m, int n, int k, float alpha, const float *A,
                  int lda, const float *B, int ldb, float beta, float *C, int ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
                trans_b ? CblasTrans : CblasNoTrans, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}

/* The library computes on one thread; the team shares the larger side of C. */
static void product(bool trans_a, bool trans_b, int m, int n, int k, float alpha, const float *A,
                    int lda, const float *B, int ldb, float beta, float *C, int ldc)
{
#pragma omp parallel if (!omp_in_parallel() && (double)m * n * k > 1e5)
    {
        size_t lo, hi;

        if (m >= n) {
            sp_team_share((size_t)m, 16, &lo, &hi);
            if (lo < hi)
                piece(trans_a, trans_b, (int)(hi - lo), n, k, alpha,
                      A + lo * (trans_a ? 1 : (size_t)lda), lda, B, ldb, beta, C + lo * (size_t)ldc,
                      ldc);
        } else {
            sp_team_share((size_t)n, 16, &lo, &hi);
            if (lo < hi)
                piece(trans_a, trans_b, m, (int)(hi - lo), k, alpha, A, lda,
                      B + lo * (trans_b ? (size_t)ldb : 1), ldb, beta, C + lo, ldc);
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

void sp_gemm(bool trans_a, bool trans_b, int m, int n, int k, float alpha, const float *A, int lda,
             const float *B, int ldb, float beta, float *C, int ldc)
{
    if (m <= 0 || n <= 0)
        return;
    if (k > 0) {
        product(trans_a, trans_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            C[(size_t)i * ldc + j] = beta == 0 ? 0 : beta * C[(size_t)i * ldc + j];
}
