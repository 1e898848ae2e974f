/*
 * Post-attention part of a layer, one micro-batch:
 *
 *   r(T,h) = x + o Wo^T + bo       n2 = norm2(r)       u(T,up) = n2 Wup^T + bup
 *   g(T,f) = act(u)                y(T,h) = r + g Wdown^T + bdown
 *
 * act is GELU-tanh, or SwiGLU on (gate, up). u, g and y are computed mlp_rows rows at a time.
 *
 * Backward B, from dy:
 *   was: y = r + g Wdown^T     so: dg = dy Wdown, dr = dy
 *   was: g = act(u)            so: du = act'(u) dg
 *   was: u = n2 Wup^T          so: dn2 = du Wup
 *   was: n2 = norm2(r)         so: dr += norm2'(dn2); gain, bias +=
 *   was: r = x + o Wo^T        so: do = dr Wo; dr goes on to x
 * Backward W: dWdown += dy^T g, dWup += du^T n2, dWo += dr^T o.
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"
#include <string.h>

struct post_args {
    struct sp_task_args base;
    bool saved, cheap, y;
    bool apart; /* the gradient of norm2 is laid out like one of norm1 */
};

static void activate(const struct sp_shape *sh, int rows, const float *u, float *g)
{
    if (sh->model.arch == SP_ARCH_LLAMA)
        sp_swiglu(rows, sh->model.mlp, u, g);
    else
        sp_gelu((size_t)rows * (size_t)sh->model.mlp, u, g);
}

/* Scratch of the forward: what is not kept. r, n2 in full, u and g one chunk. */
static size_t fwd_scratch(const struct sp_shape *sh, const struct post_args *a)
{
    size_t T = (size_t)sh->rows, h = (size_t)sh->model.hidden, n = 0;

    if (!a->saved)
        n += T * h + (size_t)sh->mlp_rows * (size_t)sh->up_width;
    if (!a->saved || !a->cheap)
        n += T * h + (size_t)sh->mlp_rows * (size_t)sh->model.mlp;
    return n;
}

/* x R, o R, w R, (y W), (saved W), (scratch) */
static void post_fwd_cpu(void *buffers[], void *arg)
{
    const struct post_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp, up = sh->up_width, next = 3;
    const float *x = sp_buffer(buffers, 0), *o = sp_buffer(buffers, 1);
    float *w = sp_buffer(buffers, 2);
    float *y = a->y ? sp_buffer(buffers, next++) : NULL;
    struct sp_post_saved s = {0};
    float *scratch = NULL, *u = NULL, *g = NULL;

    if (a->saved)
        s = sp_shape_post_view(sh, a->cheap, sp_buffer(buffers, next++));
    if (fwd_scratch(sh, a))
        scratch = sp_buffer(buffers, next);
    if (!a->saved) {
        s.r = scratch;
        u = scratch + (size_t)T * (size_t)h;
        scratch = u + (size_t)sh->mlp_rows * (size_t)up;
    }
    if (!s.n2) {
        s.n2 = scratch;
        g = scratch + (size_t)T * (size_t)h;
    }

    sp_linear_add(T, sh->q_width, h, o, w + sh->out, sp_at(w, sh->out_bias), x, s.r);
    sp_norm(sh->rms, T, h, sh->model.norm_eps, s.r, w + sh->gain, sp_at(w, sh->bias), s.n2,
            s.stats);
    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
        size_t row = (size_t)t;
        float *ut = s.u ? s.u + row * (size_t)up : u, *gt = s.g ? s.g + row * (size_t)f : g;

        sp_linear(rows, h, up, s.n2 + row * (size_t)h, w + sh->up, sp_at(w, sh->up_bias), ut, up);
        if (y || s.g)
            activate(sh, rows, ut, gt);
        if (y)
            sp_linear_add(rows, f, h, gt, w + sh->down, sp_at(w, sh->down_bias),
                          s.r + row * (size_t)h, y + row * (size_t)h);
    }
    if (y)
        sp_check_finite(&a->base, "y", y, (size_t)T * (size_t)h);
}

/* saved R, w R, g RW, dy R, du W, dr W, do W, scratch dg */
static void post_bwd_cpu(void *buffers[], void *arg)
{
    const struct post_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp, up = sh->up_width;
    struct sp_post_saved s = sp_shape_post_view(sh, a->cheap, sp_buffer(buffers, 0));
    float *w = sp_buffer(buffers, 1), *g = sp_buffer(buffers, 2), *dy = sp_buffer(buffers, 3);
    float *du = sp_buffer(buffers, 4), *dr = sp_buffer(buffers, 5), *d_o = sp_buffer(buffers, 6);

    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
        size_t row = (size_t)t;
        float *ut = s.u + row * (size_t)up, *dut = du + row * (size_t)up;

        if (sh->model.arch == SP_ARCH_LLAMA) {
            float *dg = sp_buffer(buffers, 7);

            sp_linear_dx(rows, f, h, dy + row * (size_t)h, h, w + sh->down, dg, false);
            sp_swiglu_bwd(rows, f, ut, dg, dut);
        } else {
            sp_linear_dx(rows, f, h, dy + row * (size_t)h, h, w + sh->down, dut, false);
            sp_gelu_bwd((size_t)rows * (size_t)f, ut, dut, dut);
        }
        /* dr holds dn2 until norm2's backward overwrites it. */
        sp_linear_dx(rows, h, up, dut, up, w + sh->up, dr + row * (size_t)h, false);
    }
    sp_norm_bwd(sh->rms, T, h, s.r, s.stats, w + sh->gain, dr, dy, dr,
                g + (a->apart ? 0 : sh->gain), sp_at(g, a->apart ? sh->norm_bias : sh->bias));
    sp_linear_dx(T, sh->q_width, h, dr, h, w + sh->out, d_o, false);
    sp_check_finite(&a->base, "do", d_o, (size_t)T * (size_t)sh->q_width);
}

/* saved R, o R, g RW, dy R, du R, dr R, (w R, scratch n2 or g) */
static void post_wgrad_cpu(void *buffers[], void *arg)
{
    const struct post_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp, up = sh->up_width;
    struct sp_post_saved s = sp_shape_post_view(sh, a->cheap, sp_buffer(buffers, 0));
    float *o = sp_buffer(buffers, 1), *g = sp_buffer(buffers, 2), *dy = sp_buffer(buffers, 3);
    float *du = sp_buffer(buffers, 4), *dr = sp_buffer(buffers, 5);
    float *n2 = s.n2, *act = s.g;

    sp_linear_dw(T, sh->q_width, h, o, dr, h, g + sh->out, sp_at(g, sh->out_bias));
    if (!a->cheap) {
        float *w = sp_buffer(buffers, 6);

        act = n2 = sp_buffer(buffers, 7);
        sp_norm_apply(T, h, s.r, s.stats, w + sh->gain, sp_at(w, sh->bias), n2);
    }
    sp_linear_dw(T, h, up, n2, du, up, g + sh->up, sp_at(g, sh->up_bias));
    if (!a->cheap)
        activate(sh, T, s.u, act);
    sp_linear_dw(T, f, h, act, dy, h, g + sh->down, sp_at(g, sh->down_bias));
}

/* norm R, g RW */
static void norm2_add_cpu(void *buffers[], void *arg)
{
    const struct sp_shape *sh = ((const struct sp_task_args *)arg)->shape;
    size_t h = (size_t)sh->model.hidden;
    float *norm = sp_buffer(buffers, 0), *g = sp_buffer(buffers, 1);

    sp_add(h, norm, g + sh->gain);
    if (sp_at(g, sh->bias))
        sp_add(h, sp_at(norm, sh->norm_bias), sp_at(g, sh->bias));
}

SP_MODEL(norm2_add);
SP_MODEL(post_fwd);
SP_MODEL(post_bwd);
SP_MODEL(post_wgrad);

static struct starpu_codelet post_fwd_cl = {
    SP_CPU(post_fwd_cpu),
    SP_CUDA(post_fwd_cuda).nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &post_fwd_model,
    .name = "post_fwd",
};

static struct starpu_codelet post_bwd_cl = {
    SP_CPU(post_bwd_cpu),
    SP_CUDA(post_bwd_cuda).nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &post_bwd_model,
    .name = "post_bwd",
};

static struct starpu_codelet post_wgrad_cl = {
    SP_CPU(post_wgrad_cpu),
    SP_CUDA(post_wgrad_cuda).nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &post_wgrad_model,
    .name = "post_wgrad",
};

static struct starpu_codelet norm2_add_cl = {
    SP_CPU(norm2_add_cpu),
    SP_CUDA(norm2_add_cuda).nbuffers = 2,
    .modes = {STARPU_R, STARPU_RW},
    .model = &norm2_add_model,
    .name = "norm2_add",
};

static double product_flops(const struct sp_shape *sh, bool down)
{
    double T = sh->rows, h = sh->model.hidden;

    return sp_flops_linear(T, sh->q_width, h) + sp_flops_linear(T, h, sh->up_width) +
           (down ? sp_flops_linear(T, sh->model.mlp, h) : 0);
}

void sp_post_fwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                        const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t y,
                        int64_t stashed)
{
    struct starpu_task *task =
        sp_task_new(lane, &post_fwd_cl, "post", sh, sizeof(struct post_args));
    struct post_args *a = task->cl_arg;

    a->saved = t->saved != NULL;
    a->cheap = t->cheap;
    a->y = y != NULL;
    a->base.variant = (uint32_t)(4 * a->y + 2 * a->saved + a->cheap);
    sp_task_buffer(task, t->x, STARPU_R);
    sp_task_buffer(task, t->o, STARPU_R);
    sp_task_buffer(task, w, STARPU_R);
    if (y)
        sp_task_buffer(task, y, STARPU_W);
    if (t->saved)
        sp_task_buffer(task, t->saved, STARPU_W);
    if (fwd_scratch(sh, a))
        sp_task_buffer(task, sp_scratch_handle(fwd_scratch(sp_shape_scratch(sh), a)),
                       STARPU_SCRATCH);
    sp_task_acquires(task, stashed);
    sp_task_submit(lane, task, product_flops(sh, y != NULL));
}

void sp_post_bwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                        const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t g,
                        bool apart, starpu_data_handle_t dy, starpu_data_handle_t du,
                        starpu_data_handle_t dr, starpu_data_handle_t d_o)
{
    struct starpu_task *task =
        sp_task_new(lane, &post_bwd_cl, "post", sh, sizeof(struct post_args));
    struct post_args *a = task->cl_arg;

    a->cheap = t->cheap;
    a->apart = apart;
    sp_task_buffer(task, t->saved, STARPU_R);
    sp_task_buffer(task, w, STARPU_R);
    sp_task_buffer(task, g, STARPU_RW);
    sp_task_buffer(task, dy, STARPU_R);
    sp_task_buffer(task, du, STARPU_W);
    sp_task_buffer(task, dr, STARPU_W);
    sp_task_buffer(task, d_o, STARPU_W);
    if (sh->model.arch == SP_ARCH_LLAMA)
        sp_task_buffer(
            task, sp_scratch_handle((size_t)sp_shape_scratch(sh)->mlp_rows * (size_t)sh->model.mlp),
            STARPU_SCRATCH);
    sp_task_submit(lane, task, product_flops(sh, true));
}

void sp_post_wgrad_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                          const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t g,
                          starpu_data_handle_t dy, starpu_data_handle_t du, starpu_data_handle_t dr,
                          int64_t released)
{
    struct starpu_task *task =
        sp_task_new(lane, &post_wgrad_cl, "post.w", sh, sizeof(struct post_args));
    struct post_args *a = task->cl_arg;
    int wider = sh->model.mlp > sh->model.hidden ? sh->model.mlp : sh->model.hidden;

    a->cheap = t->cheap;
    a->base.variant = t->cheap;
    sp_task_buffer(task, t->saved, STARPU_R);
    sp_task_buffer(task, t->o, STARPU_R);
    sp_task_buffer(task, g, STARPU_RW);
    sp_task_buffer(task, dy, STARPU_R);
    sp_task_buffer(task, du, STARPU_R);
    sp_task_buffer(task, dr, STARPU_R);
    if (!t->cheap) {
        sp_task_buffer(task, w, STARPU_R);
        sp_task_buffer(task, sp_scratch_handle((size_t)sp_shape_scratch(sh)->rows * (size_t)wider),
                       STARPU_SCRATCH);
    }
    sp_task_releases(task, released);
    sp_task_submit(lane, task, product_flops(sh, true));
}

void sp_norm2_add_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                         starpu_data_handle_t norm, starpu_data_handle_t g)
{
    struct starpu_task *task =
        sp_task_new(lane, &norm2_add_cl, "norm2", sh, sizeof(struct sp_task_args));

    sp_task_buffer(task, norm, STARPU_R);
    sp_task_buffer(task, g, STARPU_RW);
    sp_task_submit(lane, task, sh->model.hidden);
}
