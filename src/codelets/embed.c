/*
 * Token and position embedding:
 *
 *   x(b,s,h) = tokens[ids(b,s)] + positions[0..s-1]        (positions: GPT-2 style)
 *
 * There is no input gradient; weight gradient: dtokens[ids] += dx, dpositions += sum_b dx.
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"

struct embed_args {
    struct sp_task_args base;
    bool positions;
};

static void embed_fwd(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct embed_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    void *x = sp_buffer(buffers, 1);

    k->embed(k, sh->batch, sh->seq, sh->model.hidden, sh->first, sp_buffer(buffers, 0),
             sp_buffer(buffers, 2), a->positions ? sp_buffer(buffers, 3) : NULL, x);
    sp_check_finite(&a->base, k, "x", x, (size_t)sh->rows * (size_t)sh->model.hidden);
}

static void embed_wgrad(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct embed_args *a = arg;
    const struct sp_shape *sh = a->base.shape;

    k->embed_bwd(k, sh->batch, sh->seq, sh->model.hidden, sh->first, sp_buffer(buffers, 0),
                 sp_buffer(buffers, 1), sp_buffer(buffers, 2),
                 a->positions ? sp_buffer(buffers, 3) : NULL);
}

SP_BODY(embed_fwd)
SP_BODY(embed_wgrad)

SP_MODEL(embed_fwd);
SP_MODEL(embed_wgrad);

static struct starpu_codelet embed_fwd_cl = {
    SP_DEVICES(embed_fwd),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &embed_fwd_model,
    .name = "embed_fwd",
};

static struct starpu_codelet embed_wgrad_cl = {
    SP_DEVICES(embed_wgrad),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &embed_wgrad_model,
    .name = "embed_wgrad",
};

void sp_embed_fwd_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                         starpu_data_handle_t ids, starpu_data_handle_t tokens,
                         starpu_data_handle_t positions, starpu_data_handle_t x, int64_t stashed)
{
    struct starpu_task *t =
        sp_task_new(lane, &embed_fwd_cl, "embed", sh, sizeof(struct embed_args));
    struct embed_args *a = t->cl_arg;

    a->base.in_stream = false; /* the host writes the ids */
    a->positions = positions != NULL;
    sp_task_buffer(t, ids, STARPU_R);
    sp_task_buffer(t, x, STARPU_W);
    sp_task_buffer(t, tokens, STARPU_R);
    if (positions)
        sp_task_buffer(t, positions, STARPU_R);
    sp_task_acquires(t, stashed);
    sp_task_submit(lane, t, (double)sh->rows * sh->model.hidden);
}

void sp_embed_wgrad_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                           starpu_data_handle_t ids, starpu_data_handle_t dx,
                           starpu_data_handle_t dtokens, starpu_data_handle_t dpositions)
{
    struct starpu_task *t =
        sp_task_new(lane, &embed_wgrad_cl, "embed", sh, sizeof(struct embed_args));
    struct embed_args *a = t->cl_arg;

    a->base.in_stream = false; /* the host writes the ids */
    a->positions = dpositions != NULL;
    sp_task_buffer(t, ids, STARPU_R);
    sp_task_buffer(t, dx, STARPU_R);
    sp_task_buffer(t, dtokens, STARPU_RW);
    if (dpositions)
        sp_task_buffer(t, dpositions, STARPU_RW);
    sp_task_submit(lane, t, (double)sh->rows * sh->model.hidden);
}
