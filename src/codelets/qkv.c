/*
 * The QKV product beside attention, on weights that came with the input (HelixPipe section 4.2),
 * one micro-batch:
 *
 *   q(T,a*d) = n1 Wq^T + bq      kv(T,2g*d) = n1 Wkv^T + bkv      Llama: rotated
 *
 * Backward B: dq, dkv rotated back; dn1 = dq Wq + dkv Wkv
 * Backward W: dWq (+)= dq^T n1, dWkv (+)= dkv^T n1, with biases
 */
#include "codelets/insert.h"
#include "codelets/qkv.h"

struct qkv_args {
    struct sp_task_args base;
    bool fresh; /* g = instead of += */
};

/* n1 R, w R, q W, kv W */
static void qkv_fwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct qkv_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    void *q = sp_buffer(buffers, 2), *kv = sp_buffer(buffers, 3);

    sp_qkv_forward(k, sh, sp_buffer(buffers, 0), sp_buffer(buffers, 1), q, kv);
    sp_check_finite(&a->base, k, "q", q, (size_t)sh->rows * (size_t)sh->q_width);
    sp_check_finite(&a->base, k, "kv", kv, (size_t)sh->rows * (size_t)sh->kv_width);
}

/* w R, dq RW, dkv RW, dn1 W */
static void qkv_bwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct qkv_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    void *dn1 = sp_buffer(buffers, 3);

    sp_qkv_backward(k, sh, sp_buffer(buffers, 1), sp_buffer(buffers, 2), sp_buffer(buffers, 0),
                    dn1);
    sp_check_finite(&a->base, k, "dn1", dn1, (size_t)sh->rows * (size_t)sh->model.hidden);
}

/* n1 R, dq R, dkv R, g RW or W */
static void qkv_wgrad(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct qkv_args *a = arg;
    float *g = sp_buffer(buffers, 3);

    if (a->fresh)
        k->clear(k, sp_buffer_bytes(buffers, 3), g);
    sp_qkv_wgrad(k, a->base.shape, sp_buffer(buffers, 0), sp_buffer(buffers, 1),
                 sp_buffer(buffers, 2), g);
}

SP_BODY(qkv_fwd)
SP_BODY(qkv_bwd)
SP_BODY(qkv_wgrad)

SP_MODEL(qkv_fwd);
SP_MODEL(qkv_bwd);
SP_MODEL(qkv_wgrad);

static struct starpu_codelet qkv_fwd_cl = {
    SP_DEVICES(qkv_fwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &qkv_fwd_model,
    .name = "qkv_fwd",
};

static struct starpu_codelet qkv_bwd_cl = {
    SP_DEVICES(qkv_bwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &qkv_bwd_model,
    .name = "qkv_bwd",
};

static struct starpu_codelet qkv_wgrad_cl = {
    SP_DEVICES(qkv_wgrad),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &qkv_wgrad_model,
    .name = "qkv_wgrad",
};

void sp_qkv_fwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                       starpu_data_handle_t n1, starpu_data_handle_t w, starpu_data_handle_t q,
                       starpu_data_handle_t kv, int64_t stashed)
{
    struct starpu_task *task = sp_task_new(lane, &qkv_fwd_cl, "qkv", sh, sizeof(struct qkv_args));

    sp_task_buffer(task, n1, STARPU_R);
    sp_task_buffer(task, w, STARPU_R);
    sp_task_buffer(task, q, STARPU_W);
    sp_task_buffer(task, kv, STARPU_W);
    sp_task_acquires(task, stashed);
    sp_task_submit(lane, task, sp_qkv_flops(sh));
}

void sp_qkv_bwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                       starpu_data_handle_t w, starpu_data_handle_t dq, starpu_data_handle_t dkv,
                       starpu_data_handle_t dn1)
{
    struct starpu_task *task = sp_task_new(lane, &qkv_bwd_cl, "qkv", sh, sizeof(struct qkv_args));

    sp_task_buffer(task, w, STARPU_R);
    sp_task_buffer(task, dq, STARPU_RW);
    sp_task_buffer(task, dkv, STARPU_RW);
    sp_task_buffer(task, dn1, STARPU_W);
    sp_task_submit(lane, task, sp_qkv_flops(sh));
}

void sp_qkv_wgrad_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                         starpu_data_handle_t n1, starpu_data_handle_t dq, starpu_data_handle_t dkv,
                         starpu_data_handle_t g, bool fresh, int64_t released)
{
    struct starpu_task *task =
        sp_task_new(lane, &qkv_wgrad_cl, "qkv.w", sh, sizeof(struct qkv_args));
    struct qkv_args *a = task->cl_arg;

    a->fresh = fresh;
    sp_task_buffer(task, n1, STARPU_R);
    sp_task_buffer(task, dq, STARPU_R);
    sp_task_buffer(task, dkv, STARPU_R);
    sp_task_buffer(task, g, fresh ? STARPU_W : STARPU_RW);
    sp_task_releases(task, released);
    sp_task_submit(lane, task, sp_qkv_flops(sh));
}
