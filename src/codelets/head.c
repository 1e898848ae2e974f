/*
 * Head, one micro-batch, forward and backward in one pass over chunks of rows:
 *
 *   n(T,h) = norm(x)     logits(rows,V) = n E^T     loss += sum of -log softmax(logits)[target]
 *
 *   dlogits = (softmax - onehot) / tokens of the step
 *   was: logits = n E^T        so: dn = dlogits E, dE += dlogits^T n
 *   was: n = norm(x)           so: dx = norm'(dn); gain, bias +=
 *
 * For sampling, the logits of some rows alone.
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"

/* n(T,h), dn(T,h), logits(head_rows,V), stats(T,2) */
static size_t scratch_elements(const struct sp_shape *sh)
{
    size_t T = (size_t)sh->rows, h = (size_t)sh->model.hidden;

    return 2 * T * h + (size_t)sh->head_rows * (size_t)sp_logits_ld(sh->model.vocab) +
           sp_shape_f32(sh, 2 * T);
}

/* x R, targets R, w_norm R, w_table R, g_norm RW, g_table RW, dx W, tally RW, scratch */
static void head(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct sp_task_args *a = arg;
    const struct sp_shape *sh = a->shape;
    size_t T = (size_t)sh->rows, h = (size_t)sh->model.hidden;
    double *tally = sp_buffer(buffers, 7);
    void *x = sp_buffer(buffers, 0), *norm = sp_buffer(buffers, 2);
    void *dx = sp_buffer(buffers, 6), *n = sp_buffer(buffers, 8), *dn = sp_skip(sh, n, T * h);
    void *logits = sp_skip(sh, dn, T * h);
    float *stats =
        sp_skip(sh, logits, (size_t)sh->head_rows * (size_t)sp_logits_ld(sh->model.vocab));
    float *gn = sp_buffer(buffers, 4);

    k->norm(k, sh->rms, sh->rows, sh->model.hidden, sh->model.norm_eps, x, norm,
            sp_weight_at(sh, norm, sh->norm_bias), n, stats);
    k->cross_entropy(k, sh->rows, sh->model.hidden, sh->model.vocab, sh->head_rows, n,
                     sp_buffer(buffers, 3), sp_buffer(buffers, 1), sh->loss_scale,
                     &tally[SP_TALLY_LOSS], dn, sp_buffer(buffers, 5), logits);
    k->norm_bwd(k, sh->rms, sh->rows, sh->model.hidden, x, stats, norm, dn, NULL, dx, gn,
                sp_at(gn, sh->norm_bias));
    sp_check_finite(a, k, "dx", dx, T * h);
}

struct logits_args {
    struct sp_task_args base;
    int first, n; /* rows of x */
};

/* x R, w_norm R, w_table R, logits W, scratch n(rows,h) */
static void logits(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct logits_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    int h = sh->model.hidden, V = sh->model.vocab, ld = sp_logits_ld(V);
    void *x = sp_skip(sh, sp_buffer(buffers, 0), (size_t)a->first * (size_t)h);
    void *norm = sp_buffer(buffers, 1), *z = sp_buffer(buffers, 3), *n = sp_buffer(buffers, 4);

    k->norm(k, sh->rms, a->n, h, sh->model.norm_eps, x, norm, sp_weight_at(sh, norm, sh->norm_bias),
            n, NULL);
    k->linear(k, a->n, h, V, n, sp_buffer(buffers, 2), NULL, z, ld);
    for (int r = 0; r < a->n; r++)
        sp_check_finite(&a->base, k, "logits", sp_skip(sh, z, (size_t)r * (size_t)ld), (size_t)V);
}

SP_BODY(head)
SP_BODY(logits)

SP_MODEL(head);
SP_MODEL(logits);

static struct starpu_codelet head_cl = {
    SP_DEVICES(head),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &head_model,
    .name = "head",
};

static struct starpu_codelet logits_cl = {
    SP_DEVICES(logits),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &logits_model,
    .name = "logits",
};

void sp_head_insert(const struct sp_lane *lane, const struct sp_shape *sh, starpu_data_handle_t x,
                    starpu_data_handle_t targets, starpu_data_handle_t w_norm,
                    starpu_data_handle_t w_table, starpu_data_handle_t g_norm,
                    starpu_data_handle_t g_table, starpu_data_handle_t dx,
                    starpu_data_handle_t tally, int64_t released)
{
    struct starpu_task *t = sp_task_new(lane, &head_cl, "head", sh, sizeof(struct sp_task_args));

    /* the host writes the targets and reads the tally */
    ((struct sp_task_args *)t->cl_arg)->in_stream = false;
    sp_task_buffer(t, x, STARPU_R);
    sp_task_buffer(t, targets, STARPU_R);
    sp_task_buffer(t, w_norm, STARPU_R);
    sp_task_buffer(t, w_table, STARPU_R);
    sp_task_buffer(t, g_norm, STARPU_RW);
    sp_task_buffer(t, g_table, STARPU_RW);
    sp_task_buffer(t, dx, STARPU_W);
    sp_task_buffer(t, tally, STARPU_RW);
    sp_task_buffer(t, sp_scratch_handle(sh, scratch_elements(sp_shape_scratch(sh))),
                   STARPU_SCRATCH);
    sp_task_releases(t, released);
    sp_task_submit(lane, t, 3 * sp_flops_linear(sh->rows, sh->model.hidden, sh->model.vocab));
}

void sp_logits_insert(const struct sp_lane *lane, const struct sp_shape *sh, int first, int n,
                      starpu_data_handle_t x, starpu_data_handle_t w_norm,
                      starpu_data_handle_t w_table, starpu_data_handle_t logits)
{
    struct starpu_task *t = sp_task_new(lane, &logits_cl, "logits", sh, sizeof(struct logits_args));
    struct logits_args *a = t->cl_arg;

    a->base.in_stream = false; /* the host reads the logits */
    a->first = first;
    a->n = n;
    sp_task_buffer(t, x, STARPU_R);
    sp_task_buffer(t, w_norm, STARPU_R);
    sp_task_buffer(t, w_table, STARPU_R);
    sp_task_buffer(t, logits, STARPU_W);
    sp_task_buffer(t, sp_scratch_handle(sh, (size_t)n * (size_t)sh->model.hidden), STARPU_SCRATCH);
    sp_task_submit(lane, t, sp_flops_linear(n, sh->model.hidden, sh->model.vocab));
}
