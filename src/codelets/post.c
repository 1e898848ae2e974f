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

struct post_args {
    struct sp_task_args base;
    bool saved, cheap, y;
    bool apart; /* the gradient of norm2 is laid out like one of norm1 */
};

static void activate(const struct sp_backend *k, const struct sp_shape *sh, int rows, const void *u,
                     void *g)
{
    if (sh->model.arch == SP_ARCH_LLAMA)
        k->swiglu(k, rows, sh->model.mlp, u, g);
    else
        k->gelu(k, (size_t)rows * (size_t)sh->model.mlp, u, g);
}

/* u = n2 Wup^T + bup, and g = act(u), if wanted. */
static void up(const struct sp_backend *k, const struct sp_shape *sh, int rows, const void *n2,
               void *w, void *u, void *g)
{
    int h = sh->model.hidden, width = sh->up_width;
    void *weight = sp_weight_at(sh, w, sh->up), *bias = sp_weight_at(sh, w, sh->up_bias);

    if (g && sh->model.arch != SP_ARCH_LLAMA) {
        k->linear_gelu(k, rows, h, width, n2, weight, bias, u, g);
        return;
    }
    k->linear(k, rows, h, width, n2, weight, bias, u, width);
    if (g)
        activate(k, sh, rows, u, g);
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
static void post_fwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct post_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp, next = 3;
    const void *x = sp_buffer(buffers, 0), *o = sp_buffer(buffers, 1);
    void *w = sp_buffer(buffers, 2);
    void *y = a->y ? sp_buffer(buffers, next++) : NULL;
    struct sp_post_saved s = {0};
    void *scratch = NULL, *u = NULL, *g = NULL;

    if (a->saved)
        s = sp_shape_post_view(sh, a->cheap, sp_buffer(buffers, next++));
    if (fwd_scratch(sh, a))
        scratch = sp_buffer(buffers, next);
    if (!a->saved) {
        s.r = scratch;
        u = sp_skip(sh, scratch, (size_t)T * (size_t)h);
        scratch = sp_skip(sh, u, (size_t)sh->mlp_rows * (size_t)sh->up_width);
    }
    if (!s.n2) {
        s.n2 = scratch;
        g = sp_skip(sh, scratch, (size_t)T * (size_t)h);
    }

    k->linear_add(k, T, sh->q_width, h, o, sp_weight_at(sh, w, sh->out),
                  sp_weight_at(sh, w, sh->out_bias), x, s.r);
    k->norm(k, sh->rms, T, h, sh->model.norm_eps, s.r, sp_weight_at(sh, w, sh->gain),
            sp_weight_at(sh, w, sh->bias), s.n2, s.stats);
    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
        size_t row = (size_t)t;
        void *ut = s.u ? sp_skip(sh, s.u, row * (size_t)sh->up_width) : u;
        void *gt = s.g ? sp_skip(sh, s.g, row * (size_t)f) : g;

        up(k, sh, rows, sp_skip(sh, s.n2, row * (size_t)h), w, ut, y || s.g ? gt : NULL);
        if (y)
            k->linear_add(k, rows, f, h, gt, sp_weight_at(sh, w, sh->down),
                          sp_weight_at(sh, w, sh->down_bias), sp_skip(sh, s.r, row * (size_t)h),
                          sp_skip(sh, y, row * (size_t)h));
    }
    if (y)
        sp_check_finite(&a->base, k, "y", y, (size_t)T * (size_t)h);
}

/* saved R, w R, g RW, dy R, du W, dr W, do W, scratch dg */
static void post_bwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct post_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp, width = sh->up_width;
    struct sp_post_saved s = sp_shape_post_view(sh, a->cheap, sp_buffer(buffers, 0));
    void *w = sp_buffer(buffers, 1), *dy = sp_buffer(buffers, 3);
    void *du = sp_buffer(buffers, 4), *dr = sp_buffer(buffers, 5), *d_o = sp_buffer(buffers, 6);
    void *down = sp_weight_at(sh, w, sh->down);
    float *g = sp_buffer(buffers, 2);

    for (int t = 0; t < T; t += sh->mlp_rows) {
        int rows = T - t < sh->mlp_rows ? T - t : sh->mlp_rows;
        size_t row = (size_t)t;
        void *ut = sp_skip(sh, s.u, row * (size_t)width);
        void *dut = sp_skip(sh, du, row * (size_t)width);
        void *dyt = sp_skip(sh, dy, row * (size_t)h);

        if (sh->model.arch == SP_ARCH_LLAMA) {
            void *dg = sp_buffer(buffers, 7);

            k->linear_dx(k, rows, f, h, dyt, h, down, dg, false);
            k->swiglu_bwd(k, rows, f, ut, dg, dut);
        } else {
            k->linear_dx_gelu(k, rows, f, h, dyt, down, ut, dut);
        }
        /* dr holds dn2 until norm2's backward overwrites it. */
        k->linear_dx(k, rows, h, width, dut, width, sp_weight_at(sh, w, sh->up),
                     sp_skip(sh, dr, row * (size_t)h), false);
    }
    k->norm_bwd(k, sh->rms, T, h, s.r, s.stats, sp_weight_at(sh, w, sh->gain), dr, dy, dr,
                g + (a->apart ? 0 : sh->gain), sp_at(g, a->apart ? sh->norm_bias : sh->bias));
    k->linear_dx(k, T, sh->q_width, h, dr, h, sp_weight_at(sh, w, sh->out), d_o, false);
    sp_check_finite(&a->base, k, "do", d_o, (size_t)T * (size_t)sh->q_width);
}

/* saved R, o R, g RW, dy R, du R, dr R, (w R, scratch n2 or g) */
static void post_wgrad(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct post_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden, f = sh->model.mlp, width = sh->up_width;
    struct sp_post_saved s = sp_shape_post_view(sh, a->cheap, sp_buffer(buffers, 0));
    void *o = sp_buffer(buffers, 1), *dy = sp_buffer(buffers, 3);
    void *du = sp_buffer(buffers, 4), *dr = sp_buffer(buffers, 5);
    void *n2 = s.n2, *act = s.g;
    float *g = sp_buffer(buffers, 2);

    k->linear_dw(k, T, sh->q_width, h, o, dr, h, g + sh->out, sp_at(g, sh->out_bias));
    if (!a->cheap) {
        void *w = sp_buffer(buffers, 6);

        act = n2 = sp_buffer(buffers, 7);
        k->norm_apply(k, T, h, s.r, s.stats, sp_weight_at(sh, w, sh->gain),
                      sp_weight_at(sh, w, sh->bias), n2);
    }
    k->linear_dw(k, T, h, width, n2, du, width, g + sh->up, sp_at(g, sh->up_bias));
    if (!a->cheap)
        activate(k, sh, T, s.u, act);
    k->linear_dw(k, T, f, h, act, dy, h, g + sh->down, sp_at(g, sh->down_bias));
}

/* norm R, g RW */
static void norm2_add(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct sp_shape *sh = ((const struct sp_task_args *)arg)->shape;
    size_t h = (size_t)sh->model.hidden;
    float *norm = sp_buffer(buffers, 0), *g = sp_buffer(buffers, 1);

    k->add_f32(k, h, norm, g + sh->gain);
    if (sp_at(g, sh->bias))
        k->add_f32(k, h, sp_at(norm, sh->norm_bias), sp_at(g, sh->bias));
}

SP_BODY(norm2_add)
SP_BODY(post_fwd)
SP_BODY(post_bwd)
SP_BODY(post_wgrad)

SP_MODEL(norm2_add);
SP_MODEL(post_fwd);
SP_MODEL(post_bwd);
SP_MODEL(post_wgrad);

static struct starpu_codelet post_fwd_cl = {
    SP_DEVICES(post_fwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &post_fwd_model,
    .name = "post_fwd",
};

static struct starpu_codelet post_bwd_cl = {
    SP_DEVICES(post_bwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &post_bwd_model,
    .name = "post_bwd",
};

static struct starpu_codelet post_wgrad_cl = {
    SP_DEVICES(post_wgrad),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &post_wgrad_model,
    .name = "post_wgrad",
};

static struct starpu_codelet norm2_add_cl = {
    SP_DEVICES(norm2_add),     .nbuffers = 2,       .modes = {STARPU_R, STARPU_RW},
    .model = &norm2_add_model, .name = "norm2_add",
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
        sp_task_buffer(task, sp_scratch_handle(sh, fwd_scratch(sp_shape_scratch(sh), a)),
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
            task,
            sp_scratch_handle(sh, (size_t)sp_shape_scratch(sh)->mlp_rows * (size_t)sh->model.mlp),
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
        sp_task_buffer(task,
                       sp_scratch_handle(sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)wider),
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
