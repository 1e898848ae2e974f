#include "../reference.h"
#include "fake_cudnn.h"
#include "kernels/cuda/flash3/flash3.h"
#include "kernels/dtype.h"

struct sp_cudnn {
    cudaStream_t stream;
};

struct sp_cudnn_plan {
    struct sp_fused_shape shape;
    size_t workspace_bytes;
};

struct sp_fake_cudnn sp_fake_cudnn;

bool sp_cudnn_there(void)
{
    return !sp_fake_cudnn.absent;
}

const char *sp_cudnn_about(void)
{
    return sp_fake_cudnn.absent ? "none: libcudnn.so.9: no such file" : "9.9.9";
}

struct sp_cudnn *sp_cudnn_open(cudaStream_t stream)
{
    static struct sp_cudnn one;

    if (sp_fake_cudnn.absent)
        return NULL;
    one.stream = stream;
    sp_fake_cudnn.opened++;
    return &one;
}

void sp_cudnn_close(struct sp_cudnn *cudnn)
{
    (void)cudnn;
    sp_fake_cudnn.opened--;
}

struct sp_cudnn_plan *sp_cudnn_plan_create(struct sp_cudnn *cudnn,
                                           const struct sp_fused_shape *shape,
                                           size_t *workspace_bytes, const char **why)
{
    struct sp_cudnn_plan *plan;

    (void)cudnn;
    sp_fake_cudnn.created++;
    if (sp_fake_cudnn.refuse_shapes) {
        *why = "it was told to";
        return NULL;
    }
    assert_int_equal(shape->heads % shape->kv_heads, 0);
    assert_true(shape->q_len <= shape->kv_len && shape->kv_len <= shape->kv_rows);
    assert_true(!shape->backward || shape->kv_len <= shape->dkv_rows);
    assert_true(shape->q_len <= shape->q_rows);
    plan = new_bytes(sizeof *plan);
    plan->shape = *shape;
    plan->workspace_bytes = 100;
    if (shape->backward && shape->deterministic) {
        double rows = shape->batch * shape->heads;

        plan->workspace_bytes +=
            (size_t)(rows * shape->q_len * (8 + sp_fake_cudnn.bytes * shape->kv_len));
        if (shape->heads > shape->kv_heads)
            plan->workspace_bytes += (size_t)(4 * rows * shape->kv_len * shape->head_dim);
    }
    *workspace_bytes = plan->workspace_bytes;
    sp_fake_cudnn.alive++;
    return plan;
}

void sp_cudnn_plan_destroy(struct sp_cudnn_plan *plan)
{
    sp_fake_cudnn.alive--;
    free(plan);
}

static double element(const void *x, size_t i)
{
    return (double)sp_bf16_value(((const uint16_t *)x)[i]);
}

static void set_element(void *x, size_t i, double value)
{
    ((uint16_t *)x)[i] = sp_bf16((float)value);
}

/* For one query head: p(kv_len) = softmax of the scaled scores of query i; returns log-sum-exp. */
static double scores(const struct sp_fused_shape *s, const struct sp_fused_tensors *t, size_t at_q,
                     size_t at_k, int i, double *p)
{
    int seen = s->kv_len - s->q_len + i + 1;
    double max = -INFINITY, sum = 0;

    for (int j = 0; j < s->kv_len; j++) {
        p[j] = 0;
        for (int e = 0; e < s->head_dim; e++)
            p[j] += element(t->q, at_q + (size_t)(i * s->q_row + e)) *
                    element(t->k, at_k + (size_t)(j * s->kv_row + e));
        p[j] = j < seen ? p[j] * (double)s->scale : -INFINITY;
        max = fmax(max, p[j]);
    }
    for (int j = 0; j < s->kv_len; j++)
        sum += p[j] = exp(p[j] - max);
    for (int j = 0; j < s->kv_len; j++)
        p[j] /= sum;
    return max + log(sum);
}

static void forward_head(const struct sp_fused_shape *s, const struct sp_fused_tensors *t,
                         size_t at_q, size_t at_k, float *lse, double *p)
{
    for (int i = 0; i < s->q_len; i++) {
        lse[i] = (float)scores(s, t, at_q, at_k, i, p);
        for (int e = 0; e < s->head_dim; e++) {
            double o = 0;

            for (int j = 0; j < s->kv_len; j++)
                o += p[j] * element(t->v, at_k + (size_t)(j * s->kv_row + e));
            set_element(t->o, at_q + (size_t)(i * s->q_row + e), o);
        }
    }
}

/* dk and dv(kv_len,d) +=, of one query head */
static void backward_head(const struct sp_fused_shape *s, const struct sp_fused_tensors *t,
                          size_t at_q, size_t at_k, const float *lse, double *p, double *dk,
                          double *dv)
{
    int d = s->head_dim;

    for (int i = 0; i < s->q_len; i++) {
        size_t row = at_q + (size_t)(i * s->q_row);
        double mean = 0;

        assert_true(fabs(scores(s, t, at_q, at_k, i, p) - (double)lse[i]) < 1e-4);
        for (int e = 0; e < d; e++)
            mean += element(t->d_o, row + (size_t)e) * element(t->o, row + (size_t)e);
        for (int e = 0; e < d; e++)
            set_element(t->dq, row + (size_t)e, 0);
        for (int j = 0; j < s->kv_len; j++) {
            size_t key = at_k + (size_t)(j * s->kv_row);
            double dp = 0, ds;

            for (int e = 0; e < d; e++) {
                dp += element(t->d_o, row + (size_t)e) * element(t->v, key + (size_t)e);
                dv[j * d + e] += p[j] * element(t->d_o, row + (size_t)e);
            }
            ds = p[j] * (dp - mean) * (double)s->scale;
            for (int e = 0; e < d; e++)
                dk[j * d + e] += ds * element(t->q, row + (size_t)e);
            p[j] = ds;
        }
        for (int e = 0; e < d; e++) {
            double dq = 0;

            for (int j = 0; j < s->kv_len; j++)
                dq += p[j] * element(t->k, at_k + (size_t)(j * s->kv_row + e));
            set_element(t->dq, row + (size_t)e, dq);
        }
    }
}

/* Overwrites dk and dv with NaN before they are computed, and nothing beyond them. */
static void spoil(const struct sp_fused_shape *s, const struct sp_fused_tensors *t)
{
    for (int b = 0; b < s->batch; b++)
        for (int g = 0; g < s->kv_heads; g++)
            for (int i = 0; i < s->kv_len * s->head_dim; i++) {
                size_t row = (size_t)(b * s->dkv_rows + i / s->head_dim) * (size_t)s->dkv_row;
                size_t at = row + (size_t)(g * s->head_dim + i % s->head_dim);

                set_element(t->dk, at, NAN);
                set_element(t->dv, at, NAN);
            }
}

/* A key/value head and the query heads that use it. */
static void one_head(const struct sp_fused_shape *s, const struct sp_fused_tensors *t, int b, int g)
{
    size_t n = (size_t)s->kv_len * (size_t)s->head_dim;
    size_t at_k = (size_t)b * (size_t)s->kv_rows * (size_t)s->kv_row + (size_t)(g * s->head_dim);
    size_t at_dk = (size_t)b * (size_t)s->dkv_rows * (size_t)s->dkv_row + (size_t)(g * s->head_dim);
    double *p = new_double((size_t)s->kv_len, NULL);
    double *dk = new_double(n, NULL), *dv = new_double(n, NULL);
    int group = s->heads / s->kv_heads;

    for (int h = g * group; h < (g + 1) * group; h++) {
        size_t at_q = (size_t)b * (size_t)s->q_rows * (size_t)s->q_row + (size_t)(h * s->head_dim);
        float *lse = (float *)t->lse + (b * s->heads + h) * s->q_len;

        if (s->backward)
            backward_head(s, t, at_q, at_k, lse, p, dk, dv);
        else
            forward_head(s, t, at_q, at_k, lse, p);
    }
    for (int j = 0; s->backward && j < s->kv_len; j++)
        for (int e = 0; e < s->head_dim; e++) {
            set_element(t->dk, at_dk + (size_t)(j * s->dkv_row + e), dk[j * s->head_dim + e]);
            set_element(t->dv, at_dk + (size_t)(j * s->dkv_row + e), dv[j * s->head_dim + e]);
        }
    free(p), free(dk), free(dv);
}

/* The computation of cuDNN and FlashAttention-3. Checks alignment and overwrites the workspace's
 * ends. */
static void compute(const struct sp_fused_shape *s, const struct sp_fused_tensors *t,
                    void *workspace, size_t workspace_bytes)
{
    const void *all[] = {t->q, t->k, t->v, t->o, t->lse, t->d_o, t->dq, t->dk, t->dv};
    size_t edge = workspace_bytes < 4096 ? workspace_bytes : 4096;

    for (int i = 0; i < 9; i++) {
        assert_int_equal((uintptr_t)all[i] % 16, 0);
        assert_int_equal(all[i] != NULL, i < 5 || s->backward);
    }
    assert_int_equal((uintptr_t)workspace % 256, 0);
    memset(workspace, 0xff, edge);
    memset((char *)workspace + workspace_bytes - edge, 0xff, edge);
    if (s->backward)
        spoil(s, t);
    for (int b = 0; b < s->batch; b++)
        for (int g = 0; g < s->kv_heads; g++)
            one_head(s, t, b, g);
}

bool sp_cudnn_plan_run(struct sp_cudnn *cudnn, const struct sp_cudnn_plan *plan,
                       const struct sp_fused_tensors *t, void *workspace, const char **why)
{
    (void)cudnn;
    if (sp_fake_cudnn.refuse_runs) {
        *why = "it was told to";
        return false;
    }
    sp_fake_cudnn.runs++;
    compute(&plan->shape, t, workspace, plan->workspace_bytes);
    return true;
}

/* ---- FlashAttention-3 ---- */

struct sp_fake_flash3 sp_fake_flash3;

bool sp_flash3_usable(int device)
{
    assert_int_equal(device, 0);
    return sp_fake_flash3.head_dim > 0;
}

size_t sp_flash3_bytes(const struct sp_fused_shape *s)
{
    if (s->head_dim != sp_fake_flash3.head_dim)
        return 0;
    return s->backward ? 4 * (size_t)(s->batch * s->heads * s->q_len * s->head_dim) + 777 : 256;
}

bool sp_flash3_run(const struct sp_cuda *cuda, const struct sp_fused_shape *shape,
                   const struct sp_fused_tensors *tensors, void *workspace, const char **why)
{
    (void)cuda;
    if (sp_fake_flash3.refuse_runs) {
        *why = "it was told to";
        return false;
    }
    sp_fake_flash3.runs++;
    sp_fake_flash3.deterministic = shape->deterministic;
    compute(shape, tensors, workspace, sp_flash3_bytes(shape));
    return true;
}

const char *sp_flash3_about(void)
{
    return "none";
}
