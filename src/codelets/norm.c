/*
 * The norm before attention by itself, where the QKV product runs beside attention (HelixPipe
 * section 4.2), one micro-batch:
 *
 *   n1(T,h) = norm1(x), with its statistics
 *
 * Backward B, from dn1 and the gradient dr of the residual:
 *   was: n1 = norm1(x)      so: dx = dr + norm1'(dn1); gain, bias +=
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"

struct norm_args {
    struct sp_task_args base;
    bool saved, cheap;
};

/* x R, w_norm R, (saved W), n1 W or scratch unless saved holds it */
static void norm_fwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct norm_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden;
    void *norm = sp_buffer(buffers, 1), *n1;
    struct sp_pre_saved s = {0};

    if (a->saved)
        s = sp_shape_pre_view(sh, a->cheap, sp_buffer(buffers, 2));
    n1 = s.n1 ? s.n1 : sp_buffer(buffers, 2 + a->saved);
    k->norm(k, sh->rms, T, h, sh->model.norm_eps, sp_buffer(buffers, 0), norm,
            sp_weight_at(sh, norm, sh->norm_bias), n1, s.stats);
    sp_check_finite(&a->base, k, "n1", n1, (size_t)T * (size_t)h);
}

/* x R, saved R, w_norm R, g_norm RW, dn1 R, dr R, dx W */
static void norm_bwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct norm_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden;
    struct sp_pre_saved s = sp_shape_pre_view(sh, a->cheap, sp_buffer(buffers, 1));
    float *g = sp_buffer(buffers, 3);
    void *dx = sp_buffer(buffers, 6);

    k->norm_bwd(k, sh->rms, T, h, sp_buffer(buffers, 0), s.stats, sp_buffer(buffers, 2),
                sp_buffer(buffers, 4), sp_buffer(buffers, 5), dx, g, sp_at(g, sh->norm_bias));
    sp_check_finite(&a->base, k, "dx", dx, (size_t)T * (size_t)h);
}

SP_BODY(norm_fwd)
SP_BODY(norm_bwd)

SP_MODEL(norm_fwd);
SP_MODEL(norm_bwd);

static struct starpu_codelet norm_fwd_cl = {
    SP_DEVICES(norm_fwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &norm_fwd_model,
    .name = "norm_fwd",
};

static struct starpu_codelet norm_bwd_cl = {
    SP_DEVICES(norm_bwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &norm_bwd_model,
    .name = "norm_bwd",
};

static double norm_flops(const struct sp_shape *sh)
{
    return 8.0 * sh->rows * sh->model.hidden;
}

void sp_norm_fwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                        const struct sp_pre *t, starpu_data_handle_t n1,
                        starpu_data_handle_t w_norm, int64_t stashed)
{
    struct starpu_task *task =
        sp_task_new(lane, &norm_fwd_cl, "norm", sh, sizeof(struct norm_args));
    struct norm_args *a = task->cl_arg;

    STARPU_ASSERT_MSG(!n1 || !t->saved || !t->cheap, "starpipe: n1 is wanted twice");
    a->saved = t->saved != NULL;
    a->cheap = t->cheap;
    a->base.variant = (uint32_t)(2 * a->saved + a->cheap);
    sp_task_buffer(task, t->x, STARPU_R);
    sp_task_buffer(task, w_norm, STARPU_R);
    if (t->saved)
        sp_task_buffer(task, t->saved, STARPU_W);
    if (n1)
        sp_task_buffer(task, n1, STARPU_W);
    else if (!t->saved || !t->cheap)
        sp_task_buffer(
            task,
            sp_scratch_handle(sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)sh->model.hidden),
            STARPU_SCRATCH);
    sp_task_acquires(task, stashed);
    sp_task_submit(lane, task, norm_flops(sh));
}

void sp_norm_bwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                        const struct sp_pre *t, starpu_data_handle_t w_norm,
                        starpu_data_handle_t g_norm, starpu_data_handle_t dn1,
                        starpu_data_handle_t dr, starpu_data_handle_t dx, int64_t released)
{
    struct starpu_task *task =
        sp_task_new(lane, &norm_bwd_cl, "norm", sh, sizeof(struct norm_args));
    struct norm_args *a = task->cl_arg;

    a->cheap = t->cheap;
    sp_task_buffer(task, t->x, STARPU_R);
    sp_task_buffer(task, t->saved, STARPU_R);
    sp_task_buffer(task, w_norm, STARPU_R);
    sp_task_buffer(task, g_norm, STARPU_RW);
    sp_task_buffer(task, dn1, STARPU_R);
    sp_task_buffer(task, dr, STARPU_R);
    sp_task_buffer(task, dx, STARPU_W);
    sp_task_releases(task, released);
    sp_task_submit(lane, task, 2 * norm_flops(sh));
}
