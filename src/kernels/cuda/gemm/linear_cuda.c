/*
 * Linear layers on a GPU, weights [out, in], with the operation after a product done in its
 * epilogue:
 *
 *   y(T,out) = x w^T + bias (+ residual)       u = x w^T + bias, g = act(u)
 *
 * Backward: dx = dy w, du = act'(u) o (dy w), dw += dy^T x, dbias += column sums of dy.
 *
 * If cuBLASLt has no such epilogue, or is slower with it, the same is done in two steps. In fp8 the
 * operands are rounded before (fp8_cuda.h); bias, residual and sums of dy are not.
 */
#include "kernels/cuda/gemm/fp8_cuda.h"
#include "kernels/cuda/gemm/gemm_cuda.h"
#include "kernels/cuda/pointwise/epilogues.h"
#include "kernels/cuda/pointwise/sums.h"

static struct sp_product product(const struct sp_backend *k, int m, int n, int kk)
{
    return (struct sp_product){
        .m = m, .n = n, .k = kk, .alpha = 1, .in = k->dtype, .out = k->dtype};
}

/* The product in the backend's type of products; A is in `format`. */
static void round_operands(const struct sp_backend *k, enum sp_fp8_format format,
                           struct sp_product *p)
{
    if (k->products == SP_FP8)
        sp_fp8_product(k, format, p);
}

/* ---- forward ---- */

/* y(T,out) = x w^T, without the bias */
static struct sp_product forward(const struct sp_backend *k, const struct sp_linear *l,
                                 const void *x, void *y)
{
    struct sp_product p = product(k, l->T, l->out, l->in);

    p.trans_b = true;
    p.A = x;
    p.lda = l->in;
    p.B = l->w;
    p.ldb = l->in;
    p.D = y;
    p.ldd = sp_linear_ld(l);
    return p;
}

/* Copies the bias if fast kernels cannot read it: in a model of odd sizes it may lie at any
 * address. */
static void *aligned(const struct sp_backend *k, int n, const void *bias)
{
    size_t bytes = (size_t)n * sp_dtype_bytes(k->dtype);
    void *copy;

    if (!bias || sp_call_alignment(bias) >= 16)
        return (void *)bias;
    copy = sp_gemm_vector(k, bytes);
    if (!copy)
        return (void *)bias;
    k->copy(k, bytes, bias, copy);
    return copy;
}

/* p.vector: the bias, or NULL */
static void add_up(const struct sp_backend *k, struct sp_product *p)
{
    void *bias = p->vector;

    if (bias) {
        p->epilogue = SP_EPI_BIAS;
        if (sp_gemm_product(k, p))
            return;
    }
    p->epilogue = SP_EPI_NONE;
    p->vector = NULL;
    sp_gemm_must(k, p);
    if (bias)
        sp_cuda_add_bias(k, p->m, p->n, bias, p->D, p->ldd);
}

static void linear(const struct sp_backend *k, const struct sp_linear *l, const void *x, void *y)
{
    struct sp_product p = forward(k, l, x, y);

    round_operands(k, SP_E4M3, &p);
    p.vector = aligned(k, l->out, l->bias);
    add_up(k, &p);
}

static void linear_add(const struct sp_backend *k, const struct sp_linear *l, const void *x,
                       const void *residual, void *y)
{
    struct sp_product p = forward(k, l, x, y);

    p.beta = 1;
    p.C = residual;
    round_operands(k, SP_E4M3, &p);
    p.vector = aligned(k, l->out, l->bias);
    add_up(k, &p);
}

struct act_call {
    const struct sp_backend *k;
    enum sp_activation act;
    size_t n;
    const void *u;
    void *y;
};

static void act(void *arg)
{
    const struct act_call *c = arg;

    c->k->act(c->k, c->act, c->n, c->u, c->y);
}

/* The library has only the tanh form of gelu. In f32 the epilogue would save a pass over memory
 * that an f32 product hides anyway. */
static void linear_act(const struct sp_backend *k, const struct sp_linear *l,
                       enum sp_activation kind, const void *x, void *u, void *g)
{
    struct sp_product plain = forward(k, l, x, u), fused;
    struct act_call rest = {k, kind, (size_t)l->T * (size_t)l->out, u, g};

    round_operands(k, SP_E4M3, &plain);
    plain.vector = aligned(k, l->out, l->bias);
    plain.epilogue = l->bias ? SP_EPI_BIAS : SP_EPI_NONE;
    fused = plain;
    fused.epilogue = l->bias ? SP_EPI_GELU_BIAS : SP_EPI_GELU;
    fused.D = g;
    fused.aux = u;
    if (k->dtype == SP_BF16 && kind == SP_GELU_TANH &&
        sp_gemm_fuses(k, &fused, &plain, act, &rest) && sp_gemm_product(k, &fused))
        return;
    add_up(k, &plain);
    act(&rest);
}

/* ---- backward ---- */

/* dx(T,in) = dy(T,out) w */
static struct sp_product backward(const struct sp_backend *k, const struct sp_linear *l,
                                  const void *dy, void *dx)
{
    struct sp_product p = product(k, l->T, l->in, l->out);

    p.A = dy;
    p.lda = sp_linear_ld(l);
    p.B = l->w;
    p.ldb = l->in;
    p.C = p.D = dx;
    p.ldd = l->in;
    return p;
}

static void linear_dx(const struct sp_backend *k, const struct sp_linear *l, const void *dy,
                      void *dx, bool accumulate)
{
    struct sp_product p = backward(k, l, dy, dx);

    p.beta = accumulate ? 1 : 0;
    round_operands(k, SP_E5M2, &p);
    sp_gemm_must(k, &p);
}

static void act_bwd(void *arg)
{
    const struct act_call *c = arg;

    sp_cuda_activation_bwd(c->k, c->act, c->n, c->u, c->y, c->y);
}

static void linear_dx_act(const struct sp_backend *k, const struct sp_linear *l,
                          enum sp_activation kind, const void *dy, const void *u, void *du)
{
    struct sp_product plain = backward(k, l, dy, du), fused;
    struct act_call rest = {k, kind, (size_t)l->T * (size_t)l->in, u, du};

    round_operands(k, SP_E5M2, &plain);
    fused = plain;
    fused.epilogue = SP_EPI_DGELU;
    fused.aux = (void *)u;
    if (k->dtype == SP_BF16 && kind == SP_GELU_TANH &&
        sp_gemm_fuses(k, &fused, &plain, act_bwd, &rest) && sp_gemm_product(k, &fused))
        return;
    sp_gemm_must(k, &plain);
    act_bwd(&rest);
}

/* ---- gradients of parameters ---- */

struct sums_call {
    const struct sp_backend *k;
    int T, n;
    const void *x;
    int ldx;
    float *sum;
};

static void sums(void *arg)
{
    const struct sums_call *c = arg;

    sp_cuda_column_sums(c->k, c->T, c->n, c->x, c->ldx, c->sum);
}

/* The epilogue overwrites its sums, so they go to a separate vector and are added from there. */
static bool dw_with_sums(const struct sp_backend *k, const struct sp_product *plain,
                         struct sums_call call)
{
    struct sp_product fused = *plain;
    float *dbias = call.sum;

    fused.epilogue = SP_EPI_SUMS;
    fused.vector = call.sum = sp_gemm_vector(k, (size_t)call.n * sizeof *dbias);
    if (!fused.vector || !sp_gemm_fuses(k, &fused, plain, sums, &call) ||
        !sp_gemm_product(k, &fused))
        return false;
    k->add_f32(k, (size_t)call.n, fused.vector, dbias);
    return true;
}

static void linear_dw(const struct sp_backend *k, const struct sp_linear *l, const void *x,
                      const void *dy, float *dw, float *dbias)
{
    struct sums_call call = {k, l->T, l->out, dy, sp_linear_ld(l), dbias};
    struct sp_product p = product(k, l->out, l->in, l->T);

    p.trans_a = true;
    p.A = dy;
    p.lda = call.ldx;
    p.B = x;
    p.ldb = l->in;
    p.beta = l->first ? 0 : 1;
    p.C = p.D = dw;
    p.ldd = l->in;
    p.out = SP_F32;
    round_operands(k, SP_E5M2, &p);
    /* the sums of an epilogue would be those of rounded numbers */
    if (dbias && k->products != SP_FP8 && dw_with_sums(k, &p, call))
        return;
    sp_gemm_must(k, &p);
    if (dbias)
        sums(&call);
}

void sp_cuda_gemm_fill(struct sp_backend *backend)
{
    backend->linear = linear;
    backend->linear_add = linear_add;
    backend->linear_act = linear_act;
    backend->linear_dx = linear_dx;
    backend->linear_dx_act = linear_dx_act;
    backend->linear_dw = linear_dw;
}
