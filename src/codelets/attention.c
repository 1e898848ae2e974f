/*
 * Attention, parameter-free part of a layer, one (micro-batch, slice i):
 *
 *   O(b,s_i,a,d) = softmax(Q_i K_{0..i}^T / sqrt(d) + causal) V_{0..i}     LSE(b,a,s_i) kept
 *
 * Backward (B only, there are no weights), slices in reverse:
 *   was: O = P V               so: dV_j += P^T dO, dP = dO V^T, dS = P o (dP - rowsum(dO o O))
 *   was: S = Q K^T / sqrt(d)   so: dQ_i = dS K / sqrt(d), dK_j += dS^T Q / sqrt(d)
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

struct attention_args {
    struct sp_task_args base;
    bool first; /* backward: dK and dV are written, not accumulated */
    struct sp_attention at;
    int kv_len[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

static size_t query_elements(const struct attention_args *a)
{
    return (size_t)a->at.batch * (size_t)a->at.q_len * (size_t)a->base.shape->q_width;
}

static void attn_fwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    struct attention_args *a = arg;
    const void *kv[SP_MAX_SLICES];
    void *o = sp_buffer(buffers, 1);

    a->at.kv_len = a->kv_len;
    for (int j = 0; j < a->at.n_kv; j++)
        kv[j] = sp_buffer(buffers, 3 + j);
    k->attention(k, &a->at, sp_buffer(buffers, 0), kv, o, sp_buffer(buffers, 2));
    sp_check_finite(&a->base, k, "o", o, query_elements(a));
}

static void attn_bwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    struct attention_args *a = arg;
    const void *kv[SP_MAX_SLICES];
    void *dkv[SP_MAX_SLICES], *dq = sp_buffer(buffers, 4);
    int n = a->at.n_kv;

    a->at.kv_len = a->kv_len;
    for (int j = 0; j < n; j++) {
        kv[j] = sp_buffer(buffers, 5 + j);
        dkv[j] = sp_buffer(buffers, 5 + n + j);
    }
    k->attention_bwd(k, &a->at, sp_buffer(buffers, 0), kv, sp_buffer(buffers, 1),
                     sp_buffer(buffers, 2), sp_buffer(buffers, 3), dq, dkv, a->first);
    sp_check_finite(&a->base, k, "dq", dq, query_elements(a));
}

SP_BODY(attn_fwd)
SP_BODY(attn_bwd)

SP_MODEL(attn_fwd);
SP_MODEL(attn_bwd);

static struct starpu_codelet attn_fwd_cl = {
    SP_DEVICES(attn_fwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &attn_fwd_model,
    .name = "attn_fwd",
};

static struct starpu_codelet attn_bwd_cl = {
    SP_DEVICES(attn_bwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &attn_bwd_model,
    .name = "attn_bwd",
};

static struct starpu_task *new_task(const struct sp_lane *lane, struct starpu_codelet *cl,
                                    const struct sp_shape *sh, const struct sp_attn *t)
{
    struct starpu_task *task;
    struct attention_args *a;

    STARPU_ASSERT_MSG(t->n_kv <= SP_MAX_SLICES, "starpipe: more than %d slices", SP_MAX_SLICES);
    task = sp_task_new(lane, cl, "attn", sh,
                       offsetof(struct attention_args, kv_len) + sizeof(int) * (size_t)t->n_kv);
    a = task->cl_arg;
    a->at = (struct sp_attention){
        .batch = sh->batch,
        .heads = sh->model.heads,
        .kv_heads = sh->model.kv_heads,
        .head_dim = sh->model.head_dim,
        .scale = 1.0f / sqrtf((float)sh->model.head_dim),
        .q_len = t->q_len,
        .q_pos = t->q_pos,
        .n_kv = t->n_kv,
    };
    memcpy(a->kv_len, t->kv_len, sizeof(int) * (size_t)t->n_kv);
    a->at.kv_len = a->kv_len;
    a->base.variant = (uint32_t)t->q_pos;
    return task;
}

void sp_attn_fwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed)
{
    struct starpu_task *task = new_task(lane, &attn_fwd_cl, sh, t);
    const struct attention_args *a = task->cl_arg;

    sp_task_buffer(task, t->q, STARPU_R);
    sp_task_buffer(task, t->o, STARPU_W);
    sp_task_buffer(task, t->lse, STARPU_W);
    for (int j = 0; j < t->n_kv; j++)
        sp_task_buffer(task, t->kv[j], STARPU_R);
    sp_task_acquires(task, stashed);
    sp_task_submit(lane, task, sp_flops_attention(&a->at));
}

void sp_attn_bwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, starpu_data_handle_t d_o,
                        starpu_data_handle_t dq, const starpu_data_handle_t *dkv, int64_t released)
{
    struct starpu_task *task = new_task(lane, &attn_bwd_cl, sh, t);
    struct attention_args *a = task->cl_arg;

    a->first = first;
    sp_task_buffer(task, t->q, STARPU_R);
    sp_task_buffer(task, t->o, STARPU_R);
    sp_task_buffer(task, t->lse, STARPU_R);
    sp_task_buffer(task, d_o, STARPU_R);
    sp_task_buffer(task, dq, STARPU_W);
    for (int j = 0; j < t->n_kv; j++)
        sp_task_buffer(task, t->kv[j], STARPU_R);
    for (int j = 0; j < t->n_kv; j++)
        sp_task_buffer(task, dkv[j], first ? STARPU_W : STARPU_RW);
    sp_task_releases(task, released);
    sp_task_submit(lane, task, 2.5 * sp_flops_attention(&a->at));
}
