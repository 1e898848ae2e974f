/*
 * Pre-attention part of a layer, one micro-batch:
 *
 *   n1(T,h) = norm1(x)      q(T,a*d) = n1 Wq^T + bq      kv(T,2g*d) = n1 Wkv^T + bkv
 *   Llama: q and the keys are rotated by their position (RoPE)
 *
 * Backward B, from dq, dkv and the gradient dr of the residual:
 *   was: rotate             so: rotate dq, dk back
 *   was: q = n1 Wq^T        so: dn1 = dq Wq + dkv Wkv
 *   was: n1 = norm1(x)      so: dx = dr + norm1'(dn1); gain, bias +=
 * Backward W: dWq += dq^T n1, dWkv += dkv^T n1.
 */
#include "codelets/insert.h"
#include "codelets/qkv.h"

struct pre_args {
    struct sp_task_args base;
    bool saved, cheap, kv;
};

/* x R, w_norm R, w_qkv R, q W, (kv W), (saved W), (scratch n1) */
static void pre_fwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct pre_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, next = 4;
    void *x = sp_buffer(buffers, 0), *norm = sp_buffer(buffers, 1), *w = sp_buffer(buffers, 2);
    void *q = sp_buffer(buffers, 3), *kv = a->kv ? sp_buffer(buffers, next++) : NULL;
    struct sp_pre_saved s = {0};
    void *n1;

    if (a->saved)
        s = sp_shape_pre_view(sh, a->cheap, sp_buffer(buffers, next++));
    n1 = s.n1 ? s.n1 : sp_buffer(buffers, next);

    k->norm(k, sh->rms, T, h, sh->model.norm_eps, x, norm, sp_weight_at(sh, norm, sh->norm_bias),
            n1, s.stats);
    sp_qkv_forward(k, sh, n1, w, q, kv);
    sp_check_finite(&a->base, k, "q", q, (size_t)T * (size_t)sh->q_width);
    if (kv)
        sp_check_finite(&a->base, k, "kv", kv, (size_t)T * (size_t)sh->kv_width);
}

/* x R, saved R, w_norm R, w_qkv R, g_norm RW, dq RW, dkv RW, dr R -> dx is dr's successor: W */
static void pre_bwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct pre_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden;
    struct sp_pre_saved s = sp_shape_pre_view(sh, a->cheap, sp_buffer(buffers, 1));
    void *norm = sp_buffer(buffers, 2), *w = sp_buffer(buffers, 3);
    void *dr = sp_buffer(buffers, 7), *dx = sp_buffer(buffers, 8);
    float *g = sp_buffer(buffers, 4);

    /* dx holds dn1 until norm1's backward overwrites it, row by row. */
    sp_qkv_backward(k, sh, sp_buffer(buffers, 5), sp_buffer(buffers, 6), w, dx);
    k->norm_bwd(k, sh->rms, T, h, sp_buffer(buffers, 0), s.stats, norm, dx, dr, dx, g,
                sp_at(g, sh->norm_bias));
    sp_check_finite(&a->base, k, "dx", dx, (size_t)T * (size_t)h);
}

/* saved R, dq R, dkv R, g_qkv RW, (x R, w_norm R, scratch n1) */
static void pre_wgrad(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct pre_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    struct sp_pre_saved s = sp_shape_pre_view(sh, a->cheap, sp_buffer(buffers, 0));
    void *n1 = s.n1;

    if (!n1) {
        void *norm = sp_buffer(buffers, 5);

        n1 = sp_buffer(buffers, 6);
        k->norm_apply(k, sh->rows, sh->model.hidden, sp_buffer(buffers, 4), s.stats, norm,
                      sp_weight_at(sh, norm, sh->norm_bias), n1);
    }
    sp_qkv_wgrad(k, sh, n1, sp_buffer(buffers, 1), sp_buffer(buffers, 2), sp_buffer(buffers, 3));
}

SP_BODY(pre_fwd)
SP_BODY(pre_bwd)
SP_BODY(pre_wgrad)

SP_MODEL(pre_fwd);
SP_MODEL(pre_bwd);
SP_MODEL(pre_wgrad);

static struct starpu_codelet pre_fwd_cl = {
    SP_DEVICES(pre_fwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &pre_fwd_model,
    .name = "pre_fwd",
};

static struct starpu_codelet pre_bwd_cl = {
    SP_DEVICES(pre_bwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &pre_bwd_model,
    .name = "pre_bwd",
};

static struct starpu_codelet pre_wgrad_cl = {
    SP_DEVICES(pre_wgrad),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &pre_wgrad_model,
    .name = "pre_wgrad",
};

void sp_pre_fwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                       const struct sp_pre *t, starpu_data_handle_t w_norm,
                       starpu_data_handle_t w_qkv, int64_t stashed)
{
    struct starpu_task *task = sp_task_new(lane, &pre_fwd_cl, "pre", sh, sizeof(struct pre_args));
    struct pre_args *a = task->cl_arg;

    a->saved = t->saved != NULL;
    a->cheap = t->cheap;
    a->kv = t->kv != NULL;
    a->base.variant = (uint32_t)(4 * !a->kv + 2 * a->saved + a->cheap);
    sp_task_buffer(task, t->x, STARPU_R);
    sp_task_buffer(task, w_norm, STARPU_R);
    sp_task_buffer(task, w_qkv, STARPU_R);
    sp_task_buffer(task, t->q, STARPU_W);
    if (t->kv)
        sp_task_buffer(task, t->kv, STARPU_W);
    if (t->saved)
        sp_task_buffer(task, t->saved, STARPU_W);
    if (!t->saved || !t->cheap)
        sp_task_buffer(
            task,
            sp_scratch_handle(sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)sh->model.hidden),
            STARPU_SCRATCH);
    sp_task_acquires(task, stashed);
    sp_task_submit(lane, task, sp_qkv_flops(sh));
}

void sp_pre_bwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                       const struct sp_pre *t, starpu_data_handle_t w_norm,
                       starpu_data_handle_t w_qkv, starpu_data_handle_t g_norm,
                       starpu_data_handle_t dq, starpu_data_handle_t dkv, starpu_data_handle_t dr,
                       starpu_data_handle_t dx)
{
    struct starpu_task *task = sp_task_new(lane, &pre_bwd_cl, "pre", sh, sizeof(struct pre_args));
    struct pre_args *a = task->cl_arg;

    a->cheap = t->cheap;
    sp_task_buffer(task, t->x, STARPU_R);
    sp_task_buffer(task, t->saved, STARPU_R);
    sp_task_buffer(task, w_norm, STARPU_R);
    sp_task_buffer(task, w_qkv, STARPU_R);
    sp_task_buffer(task, g_norm, STARPU_RW);
    sp_task_buffer(task, dq, STARPU_RW);
    sp_task_buffer(task, dkv, STARPU_RW);
    sp_task_buffer(task, dr, STARPU_R);
    sp_task_buffer(task, dx, STARPU_W);
    sp_task_submit(lane, task, sp_qkv_flops(sh));
}

void sp_pre_wgrad_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                         const struct sp_pre *t, starpu_data_handle_t w_norm,
                         starpu_data_handle_t dq, starpu_data_handle_t dkv,
                         starpu_data_handle_t g_qkv, int64_t released)
{
    struct starpu_task *task =
        sp_task_new(lane, &pre_wgrad_cl, "pre.w", sh, sizeof(struct pre_args));
    struct pre_args *a = task->cl_arg;

    a->cheap = t->cheap;
    a->base.variant = t->cheap;
    sp_task_buffer(task, t->saved, STARPU_R);
    sp_task_buffer(task, dq, STARPU_R);
    sp_task_buffer(task, dkv, STARPU_R);
    sp_task_buffer(task, g_qkv, STARPU_RW);
    if (!t->cheap) {
        sp_task_buffer(task, t->x, STARPU_R);
        sp_task_buffer(task, w_norm, STARPU_R);
        sp_task_buffer(
            task,
            sp_scratch_handle(sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)sh->model.hidden),
            STARPU_SCRATCH);
    }
    sp_task_releases(task, released);
    sp_task_submit(lane, task, sp_qkv_flops(sh));
}
