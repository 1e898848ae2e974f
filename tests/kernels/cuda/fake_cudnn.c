#include "../reference.h"
#include "fake_cudnn.h"
#include "kernels/cuda/flash3/flash3.h"
#include "kernels/dtype.h"
#include "kernels/kernels.h"

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
    assert_true(shape->full || shape->q_len <= shape->kv_len);
    assert_true(shape->kv_len <= shape->kv_rows);
    assert_true(!shape->backward || shape->kv_len <= shape->dkv_rows);
    assert_true(shape->q_len <= shape->q_rows);
    plan = malloc(sizeof *plan);
    assert_non_null(plan);
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

/* Rows of `width` elements, `row` apart in x and `ld` apart in memory that holds f32. */
struct rows {
    int n, width, row, ld;
};

static void gather(struct rows r, const void *x, float *values)
{
    for (int i = 0; i < r.n * r.width; i++)
        values[i / r.width * r.ld + i % r.width] =
            sp_bf16_value(((const uint16_t *)x)[i / r.width * r.row + i % r.width]);
}

static void scatter(struct rows r, const float *values, void *x)
{
    for (int i = 0; i < r.n * r.width; i++)
        ((uint16_t *)x)[i / r.width * r.row + i % r.width] =
            sp_bf16(values[i / r.width * r.ld + i % r.width]);
}

static void *from(const void *x, int rows, int row)
{
    return (uint16_t *)(uintptr_t)x + (size_t)rows * (size_t)row;
}

/* Attention of one sequence by the CPU's kernels, on copies without gaps. */
static void one_sequence(const struct sp_fused_shape *s, const struct sp_fused_tensors *t, int b)
{
    int q_pos = s->kv_len - (s->full ? 0 : s->q_len);
    const struct sp_attention at = {1,        s->heads, s->kv_heads, s->head_dim, s->scale,
                                    s->q_len, q_pos,    1,           &s->kv_len};
    int q_width = s->heads * s->head_dim, width = s->kv_heads * s->head_dim, at_q = b * s->q_rows;
    struct rows q_rows = {s->q_len, q_width, s->q_row, q_width};
    struct rows kv_rows = {s->kv_len, width, s->kv_row, 2 * width};
    struct rows dkv_rows = {s->kv_len, width, s->dkv_row, 2 * width};
    size_t n = (size_t)(s->q_len * q_width), n_kv = (size_t)(s->kv_len * 2 * width);
    size_t n_lse = (size_t)(s->heads * s->q_len);
    float *q = new_nan(n), *kv = new_nan(n_kv), *o = new_nan(n), *lse = new_nan(n_lse);
    float *d_o = new_nan(n), *dq = new_nan(n), *dkv = test_bytes(n_kv * sizeof *dkv);
    float *kept = (float *)t->lse + (size_t)b * n_lse;
    const float *keys[] = {kv};

    gather(q_rows, from(t->q, at_q, s->q_row), q);
    gather(kv_rows, from(t->k, b * s->kv_rows, s->kv_row), kv);
    gather(kv_rows, from(t->v, b * s->kv_rows, s->kv_row), kv + width);
    sp_attention(&at, q, keys, o, lse);
    if (!s->backward) {
        memcpy(kept, lse, n_lse * sizeof *lse);
        scatter(q_rows, o, from(t->o, at_q, s->q_row));
    } else {
        for (size_t i = 0; i < n_lse; i++) /* of other keys, too, only if there may be any */
            assert_true(s->full ? lse[i] < kept[i] + 1e-4f : fabsf(lse[i] - kept[i]) < 1e-4f);
        gather(q_rows, from(t->o, at_q, s->q_row), o);
        gather(q_rows, from(t->d_o, at_q, s->q_row), d_o);
        memset(dkv, 0, n_kv * sizeof *dkv);
        sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                         .kv = (const void *const *)keys,
                                                         .o = o,
                                                         .lse = kept,
                                                         .d_o = d_o,
                                                         .dq = dq,
                                                         .dkv = (void *const *)&dkv});
        scatter(q_rows, dq, from(t->dq, at_q, s->q_row));
        scatter(dkv_rows, dkv, from(t->dk, b * s->dkv_rows, s->dkv_row));
        scatter(dkv_rows, dkv + width, from(t->dv, b * s->dkv_rows, s->dkv_row));
    }
}

/* Outputs hold nothing before they are written, and lie nowhere else. */
static void spoil(const struct sp_fused_shape *s, const struct sp_fused_tensors *t)
{
    int width = s->kv_heads * s->head_dim;
    float *nan = new_nan((size_t)(s->kv_len * width));

    for (int b = 0; b < s->batch; b++) {
        scatter((struct rows){s->kv_len, width, s->dkv_row, width}, nan,
                from(t->dk, b * s->dkv_rows, s->dkv_row));
        scatter((struct rows){s->kv_len, width, s->dkv_row, width}, nan,
                from(t->dv, b * s->dkv_rows, s->dkv_row));
    }
}

/* Both use tensors and a workspace like this. */
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
        one_sequence(s, t, b);
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
