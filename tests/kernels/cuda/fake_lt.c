#include "gemm_host.h"
#include <stdarg.h>

struct sp_fake_lt sp_fake_lt;

struct op {
    int32_t compute, scale, trans[2];
    uint32_t epilogue;
    const void *bias;
    void *aux;
    int64_t ld_aux;
    const float *by[2]; /* scales of fp8 */
    int8_t fast;
};

struct layout {
    int32_t type;
    uint64_t rows, cols;
    int64_t ld;
};

struct preference {
    uint32_t align[4], schemes;
    uint64_t workspace;
};

/* An algorithm remembers this of the product it was named for. */
struct algo {
    uint32_t index, align[4], workspace, problem;
};

void sp_fake_lt_reset(void)
{
    memset(&sp_fake_lt, 0, sizeof sp_fake_lt);
    sp_fake_lt.algos = 8;
    for (int i = 0; i < SP_FAKE_ALGOS; i++)
        sp_fake_lt.us[i] = 500 + 50 * i;
}

static double slowness(void)
{
    bool disturbed =
        sp_fake_lt.runs > sp_fake_lt.slow_from && sp_fake_lt.runs <= sp_fake_lt.slow_to;

    return disturbed ? 10 : sp_fake_cudart.us < sp_fake_lt.cold_us ? 3 : 1;
}

static cublasStatus_t breach(cublasStatus_t status, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    if (!sp_fake_lt.breach[0])
        vsnprintf(sp_fake_lt.breach, sizeof sp_fake_lt.breach, format, ap);
    va_end(ap);
    return status;
}

/* ---- handles and descriptors ---- */

size_t cublasLtGetVersion(void)
{
    return 130100;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_INITIALIZED ? "not initialized" : "a status";
}

static void *make(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        abort();
    sp_fake_lt.live++;
    return p;
}

static cublasStatus_t drop(void *p)
{
    sp_fake_lt.live--;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lt)
{
    if (sp_fake_lt.create_status == CUBLAS_STATUS_SUCCESS)
        *lt = make(1);
    return sp_fake_lt.create_status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lt)
{
    return drop((void *)lt);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct op *op = make(sizeof *op);

    op->compute = compute;
    op->scale = scale;
    op->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *desc = (void *)op;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t op)
{
    return drop((void *)op);
}

static cublasStatus_t store(void *to, size_t size, const void *value, size_t bytes)
{
    if (!value || size != bytes)
        return breach(CUBLAS_STATUS_INVALID_VALUE, "an attribute of %zu bytes got %zu", size,
                      bytes);
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    struct op *op = (void *)desc;

    switch ((int)what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return store(&op->trans[0], sizeof op->trans[0], value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return store(&op->trans[1], sizeof op->trans[1], value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return store(&op->epilogue, sizeof op->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return store(&op->bias, sizeof op->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return store(&op->aux, sizeof op->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return store(&op->ld_aux, sizeof op->ld_aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return store(&op->by[0], sizeof op->by[0], value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return store(&op->by[1], sizeof op->by[1], value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return store(&op->fast, sizeof op->fast, value, bytes);
    default:
        return breach(CUBLAS_STATUS_INVALID_VALUE, "attribute %d", (int)what);
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *desc, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    struct layout *l = make(sizeof *l);

    *l = (struct layout){type, rows, cols, ld};
    *desc = (void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return drop((void *)layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    struct preference *p = make(sizeof *p);

    *p = (struct preference){{256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK, 0};
    *pref = (void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    return drop((void *)pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    struct preference *p = (void *)pref;

    switch ((int)what) {
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return store(&p->align[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                     sizeof p->align[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return store(&p->schemes, sizeof p->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return store(&p->workspace, sizeof p->workspace, value, bytes);
    default:
        return breach(CUBLAS_STATUS_INVALID_VALUE, "preference %d", (int)what);
    }
}

/* ---- what is legal ---- */

/* op(A) m x k, op(B) k x n, C and D m x n: as cuBLASLt has them. */
struct sizes {
    uint64_t m, n, k;
};

static bool fits(const struct layout *l)
{
    return l->rows > 0 && l->cols > 0 && l->ld >= (int64_t)l->rows;
}

static bool is_fp8(const struct layout *l)
{
    return l->type == CUDA_R_8F_E4M3 || l->type == CUDA_R_8F_E5M2;
}

/* As Ada and Hopper have it: the first operand is transposed, the second is not. */
static bool legal_fp8(const struct op *op, const struct layout *a, const struct layout *b,
                      const struct layout *d)
{
    const uint64_t whole =
        a->rows | a->cols | (uint64_t)a->ld | b->rows | (uint64_t)b->ld | d->rows | (uint64_t)d->ld;

    return !sp_fake_lt.no_fp8 && is_fp8(b) && op->trans[0] && !op->trans[1] && whole % 16 == 0 &&
           (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) &&
           op->epilogue != CUBLASLT_EPILOGUE_BGRADB && op->by[0] && op->by[1];
}

static cublasStatus_t legal(const struct op *op, const struct layout *a, const struct layout *b,
                            const struct layout *c, const struct layout *d, struct sizes *s)
{
    bool aux = (op->epilogue & 128) != 0;

    s->m = op->trans[0] ? a->cols : a->rows;
    s->k = op->trans[0] ? a->rows : a->cols;
    s->n = op->trans[1] ? b->rows : b->cols;
    if ((op->trans[1] ? b->cols : b->rows) != s->k || d->rows != s->m || d->cols != s->n)
        return breach(CUBLAS_STATUS_INVALID_VALUE, "sizes do not agree");
    if (!fits(a) || !fits(b) || !fits(d))
        return breach(CUBLAS_STATUS_INVALID_VALUE, "a leading dimension is below the rows");
    if (memcmp(c, d, sizeof *c) != 0)
        return breach(CUBLAS_STATUS_NOT_SUPPORTED, "C and D are laid out differently");
    if (op->compute != CUBLAS_COMPUTE_32F || op->scale != CUDA_R_32F)
        return breach(CUBLAS_STATUS_NOT_SUPPORTED, "not computed in f32");
    if (is_fp8(a) && !legal_fp8(op, a, b, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((a->type != b->type && !is_fp8(a)) || (a->type == CUDA_R_32F && d->type != CUDA_R_32F))
        return breach(CUBLAS_STATUS_NOT_SUPPORTED, "types %d, %d, %d", a->type, b->type, d->type);
    if ((op->epilogue & 4 || op->epilogue >= 256) && !op->bias)
        return breach(CUBLAS_STATUS_INVALID_VALUE, "no vector for epilogue %u", op->epilogue);
    if (aux && (!op->aux || op->ld_aux < (int64_t)s->m || op->ld_aux % 8))
        return breach(CUBLAS_STATUS_INVALID_VALUE, "aux: leading dimension %d for %d rows",
                      (int)op->ld_aux, (int)s->m);
    if (aux && d->type != CUDA_R_16BF)
        return breach(CUBLAS_STATUS_NOT_SUPPORTED, "gelu of type %d", d->type);
    return CUBLAS_STATUS_SUCCESS;
}

static uint32_t mixed(uint32_t hash, uint64_t value)
{
    return (hash ^ (uint32_t)(value ^ value >> 32)) * 16777619u;
}

/* All that must not change between the heuristics and the product. */
static uint32_t problem_of(const struct op *op, const struct layout *const l[3])
{
    uint32_t hash =
        mixed(mixed(mixed(1, op->epilogue), (uint64_t)op->trans[0]), (uint64_t)op->trans[1] + 7);

    for (int i = 0; i < 3; i++)
        hash = mixed(mixed(mixed(mixed(hash, (uint64_t)l[i]->type), l[i]->rows), l[i]->cols),
                     (uint64_t)l[i]->ld);
    return hash;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lt, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                              cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    const struct op *op = (void *)desc;
    const struct layout *const l[3] = {(void *)A, (void *)B, (void *)D};
    const struct preference *pref = (void *)preference;
    struct sizes s;
    cublasStatus_t status = legal(op, l[0], l[1], (void *)C, l[2], &s);

    (void)lt;
    sp_fake_lt.asked++;
    *n = 0;
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (l[2]->type == CUDA_R_16BF && pref->schemes != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        breach(status, "sums in bf16 are allowed");
    if (op->epilogue & sp_fake_lt.no_epilogue)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(found, 0, (size_t)wanted * sizeof *found);
    for (*n = 0; *n < wanted && *n < sp_fake_lt.algos; ++*n) {
        struct algo algo = {.index = (uint32_t)((sp_fake_lt.first + *n) % sp_fake_lt.algos),
                            .problem = problem_of(op, l)};

        memcpy(algo.align, pref->align, sizeof algo.align);
        algo.workspace = algo.index << 20;
        memcpy(&found[*n].algo, &algo, sizeof algo);
        found[*n].workspaceSize = algo.workspace;
        found[*n].state =
            algo.workspace <= pref->workspace ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return *n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- the product ---- */

static enum sp_dtype dtype_of(int32_t type)
{
    return type == CUDA_R_16BF ? SP_BF16 : SP_F32;
}

/* Element (i,j) of op(X). */
static float element(const struct layout *l, int32_t trans, const void *x, uint64_t i, uint64_t j)
{
    uint64_t at = trans ? j + i * (uint64_t)l->ld : i + j * (uint64_t)l->ld;

    if (is_fp8(l))
        return sp_fp8_value(l->type == CUDA_R_8F_E4M3 ? SP_E4M3 : SP_E5M2,
                            ((const uint8_t *)x)[at]);
    return value_of(dtype_of(l->type), x, at);
}

static bool aligned(const void *x, uint32_t to)
{
    return (uintptr_t)x % to == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t la, const void *B,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *C,
                              cublasLtMatrixLayout_t lc, void *D, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *opaque, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const struct op *op = (void *)desc;
    const struct layout *a = (void *)la, *b = (void *)lb, *d = (void *)ld;
    const struct layout *const l[3] = {a, b, d};
    float scale = *(const float *)alpha * (is_fp8(a) ? *op->by[0] * *op->by[1] : 1),
          keep = *(const float *)beta;
    enum sp_dtype type = dtype_of(d->type);
    struct algo algo;
    struct sizes s;
    cublasStatus_t status = legal(op, a, b, (void *)lc, d, &s);

    (void)lt, (void)stream;
    memcpy(&algo, opaque, sizeof algo);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (algo.problem != problem_of(op, l))
        return breach(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm of another product");
    if (!aligned(A, algo.align[0]) || !aligned(B, algo.align[1]) || !aligned(C, algo.align[2]) ||
        !aligned(D, algo.align[3]))
        return breach(CUBLAS_STATUS_EXECUTION_FAILED, "misaligned: %p %p %p %p", A, B, C, D);
    if ((op->epilogue & 4 || op->epilogue >= 256) && !aligned(op->bias, 16))
        return breach(CUBLAS_STATUS_EXECUTION_FAILED, "misaligned vector %p", op->bias);
    if (op->epilogue & 128 && !aligned(op->aux, 16))
        return breach(CUBLAS_STATUS_EXECUTION_FAILED, "misaligned aux %p", op->aux);
    if (algo.workspace > workspace_bytes || !aligned(workspace, 256))
        return breach(CUBLAS_STATUS_INVALID_VALUE, "workspace");
    if (sp_fake_lt.refuse >> algo.index & 1) {
        sp_fake_cudart.us += 1; /* between two events there is always some time */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (is_fp8(a) && !(aligned(A, 16) && aligned(B, 16) && aligned(C, 16) && aligned(D, 16)))
        return breach(CUBLAS_STATUS_EXECUTION_FAILED, "fp8, misaligned: %p %p %p %p", A, B, C, D);
    sp_fake_lt.fp8_runs += is_fp8(a);
    sp_fake_lt.fast_runs += is_fp8(a) && op->fast;
    sp_fake_lt.runs++;
    sp_fake_lt.last_algo = (int)algo.index;
    sp_fake_lt.last_epilogue = op->epilogue;
    sp_fake_cudart.us +=
        (sp_fake_lt.us[algo.index] + (op->epilogue > 4 ? sp_fake_lt.epilogue_us : 0)) * slowness();
    if (sp_fake_lt.fails_again & 1u << algo.index)
        sp_fake_lt.refuse |= 1u << algo.index;
    memset(workspace, 0xff, 4096); /* all of it is the library's */
    memset((char *)workspace + workspace_bytes - 4096, 0xff, 4096);
    for (uint64_t j = 0; j < s.n; j++) {
        double column = 0;

        for (uint64_t i = 0; i < s.m; i++) {
            uint64_t at = i + j * (uint64_t)d->ld, aux = i + j * (uint64_t)op->ld_aux;
            uint64_t stride = algo.index + 1;
            float x = 0;

            /* Algorithm 0 sums in order, another in as many parts as its number says. */
            for (uint64_t part = 0; part < stride; part++) {
                float sum = 0;

                for (uint64_t k = part; k < s.k; k += stride)
                    sum += element(a, op->trans[0], A, i, k) * element(b, op->trans[1], B, k, j);
                x += sum;
            }
            x *= scale;
            if (keep != 0)
                x += keep * value_of(type, C, at);
            if (op->epilogue & 4)
                x += value_of(type, op->bias, i);
            if (op->epilogue & 32) {
                float u = x;

                set_value(type, op->aux, aux, x);
                sp_activation(SP_GELU_TANH, 1, &u, &x);
            }
            if (op->epilogue & 64) {
                float u = value_of(type, op->aux, aux);

                sp_activation_bwd(SP_GELU_TANH, 1, &u, &x, &x);
            }
            set_value(type, D, at, x);
        }
        for (uint64_t k = 0; k < s.k && op->epilogue == CUBLASLT_EPILOGUE_BGRADB; k++)
            column += (double)element(b, op->trans[1], B, k, j);
        if (op->epilogue == CUBLASLT_EPILOGUE_BGRADB)
            set_value(type, (void *)(uintptr_t)op->bias, j, (float)column);
    }
    return CUBLAS_STATUS_SUCCESS;
}
