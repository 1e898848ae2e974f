/*
 * The end of a step, one parameter block at a time:
 *
 *   norm^2 = sum over blocks of sum of g^2 (replicas once)
 *   AdamW with factor g, factor = min(1, clip / norm); decoupled weight decay on matrices and tables; g = 0
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"
#include <string.h>

static double *doubles(void *buffer)
{
    return (double *)STARPU_VECTOR_GET_PTR((struct starpu_vector_interface *)buffer);
}

static size_t length(void *buffer)
{
    struct starpu_vector_interface *v = buffer;

    return (size_t)STARPU_VECTOR_GET_NX(v) * STARPU_VECTOR_GET_ELEMSIZE(v) / sizeof(float);
}

static void sumsq_cpu(void *buffers[], void *arg)
{
    (void)arg;
    sp_sumsq(length(buffers[0]), sp_buffer(buffers, 0), doubles(buffers[1]) + SP_TALLY_SUMSQ);
}

struct sum_args {
    struct sp_task_args base;
    bool both;
};

static void sum_cpu(void *buffers[], void *arg)
{
    const struct sum_args *args = arg;
    float *a = sp_buffer(buffers, 0), *b = sp_buffer(buffers, 1);

    sp_add(length(buffers[0]), b, a);
    if (args->both)
        memcpy(b, a, sizeof *a * length(buffers[0]));
}

struct update_args {
    struct sp_task_args base;
    const struct sp_params *params;
    enum sp_block_kind kind;
    int layer;
    size_t first; /* element of the block that the buffers begin with */
    struct sp_adamw hp;
    float decay;
    float *w, *g, *m, *v; /* while the task runs */
    size_t n;
};

static void update_tensor(void *arg, const struct sp_tensor *t)
{
    struct update_args *a = arg;
    size_t from = t->offset, to = from + (size_t)t->rows * (size_t)t->cols, at;

    from = from > a->first ? from : a->first;
    to = to < a->first + a->n ? to : a->first + a->n;
    if (from >= to)
        return;
    at = from - a->first;
    a->hp.weight_decay = t->decay ? a->decay : 0;
    sp_adamw(to - from, &a->hp, a->w + at, a->g + at, a->m + at, a->v + at);
}

/* w RW, g RW, m RW, v RW */
static void update_cpu(void *buffers[], void *arg)
{
    struct update_args *a = arg;

    a->w = sp_buffer(buffers, 0);
    a->g = sp_buffer(buffers, 1);
    a->m = sp_buffer(buffers, 2);
    a->v = sp_buffer(buffers, 3);
    a->n = length(buffers[0]);
    sp_block_each(a->params, a->kind, a->layer, update_tensor, a);
    sp_check_finite(&a->base, "w", a->w, a->n);
}

/* w R, g R, m R, v R, then the copies W */
static void state_copy_cpu(void *buffers[], void *arg)
{
    (void)arg;
    for (int i = 0; i < 4; i++)
        memcpy(sp_buffer(buffers, 4 + i), sp_buffer(buffers, i),
               sizeof(float) * length(buffers[i]));
}

/* from R, to W */
static void copy_cpu(void *buffers[], void *arg)
{
    (void)arg;
    memcpy(sp_buffer(buffers, 1), sp_buffer(buffers, 0), sizeof(float) * length(buffers[0]));
}

/* a W */
static void clear_cpu(void *buffers[], void *arg)
{
    (void)arg;
    memset(sp_buffer(buffers, 0), 0, sizeof(float) * length(buffers[0]));
}

SP_MODEL(sumsq);
SP_MODEL(clear);
SP_MODEL(copy);
SP_MODEL(state_copy);
SP_MODEL(sum);
SP_MODEL(update);

static struct starpu_codelet sumsq_cl = {
    SP_CPU(sumsq_cpu),
    SP_CUDA(sumsq_cuda).nbuffers = 2,
    .modes = {STARPU_R, STARPU_RW},
    .model = &sumsq_model,
    .name = "sumsq",
};

static struct starpu_codelet sum_cl = {
    SP_CPU(sum_cpu),
    SP_CUDA(sum_cuda).nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &sum_model,
    .name = "sum",
};

static struct starpu_codelet update_cl = {
    SP_CPU(update_cpu),
    SP_CUDA(update_cuda).nbuffers = 4,
    .modes = {STARPU_RW, STARPU_RW, STARPU_RW, STARPU_RW},
    .model = &update_model,
    .name = "update",
};

static struct starpu_codelet state_copy_cl = {
    SP_CPU(state_copy_cpu),
    SP_CUDA(state_copy_cuda).nbuffers = 8,
    .modes = {STARPU_R, STARPU_R, STARPU_R, STARPU_R, STARPU_W, STARPU_W, STARPU_W, STARPU_W},
    .model = &state_copy_model,
    .name = "state_copy",
};

static struct starpu_codelet clear_cl = {
    SP_CPU(clear_cpu), SP_CUDA(clear_cuda).nbuffers = 1, .modes = {STARPU_W}, .model = &clear_model,
    .name = "clear",
};

static struct starpu_codelet copy_cl = {
    SP_CPU(copy_cpu),
    SP_CUDA(copy_cuda).nbuffers = 2,
    .modes = {STARPU_R, STARPU_W},
    .model = &copy_model,
    .name = "copy",
};

static double floats(starpu_data_handle_t handle)
{
    return (double)(starpu_data_get_size(handle) / sizeof(float));
}

void sp_sumsq_insert(const struct sp_lane *lane, starpu_data_handle_t g, starpu_data_handle_t tally)
{
    struct starpu_task *t = sp_task_new(lane, &sumsq_cl, "norm", NULL, sizeof(struct sp_task_args));

    sp_task_buffer(t, g, STARPU_R);
    sp_task_buffer(t, tally, STARPU_RW);
    sp_task_submit(lane, t, 2.0 * floats(g));
}

void sp_sum_insert(const struct sp_lane *lane, starpu_data_handle_t a, starpu_data_handle_t b,
                   bool both)
{
    struct starpu_task *t = sp_task_new(lane, &sum_cl, "sum", NULL, sizeof(struct sum_args));

    ((struct sum_args *)t->cl_arg)->both = both;
    sp_task_buffer(t, a, STARPU_RW);
    sp_task_buffer(t, b, both ? STARPU_RW : STARPU_R);
    sp_task_submit(lane, t, floats(a));
}

void sp_update_insert(const struct sp_lane *lane, const struct sp_params *params,
                      enum sp_block_kind kind, int layer, size_t first, const struct sp_update *hp,
                      starpu_data_handle_t w, starpu_data_handle_t g, starpu_data_handle_t m,
                      starpu_data_handle_t v)
{
    struct starpu_task *t =
        sp_task_new(lane, &update_cl, "update", NULL, sizeof(struct update_args));
    struct update_args *a = t->cl_arg;

    a->params = params;
    a->kind = kind;
    a->layer = layer;
    a->first = first;
    a->decay = hp->weight_decay;
    a->hp = (struct sp_adamw){
        .lr = hp->lr,
        .beta1 = hp->beta1,
        .beta2 = hp->beta2,
        .eps = hp->eps,
        .bias1 = hp->bias1,
        .bias2 = hp->bias2,
        .grad_scale = hp->factor,
    };
    sp_task_buffer(t, w, STARPU_RW);
    sp_task_buffer(t, g, STARPU_RW);
    sp_task_buffer(t, m, STARPU_RW);
    sp_task_buffer(t, v, STARPU_RW);
    sp_task_submit(lane, t, 15.0 * floats(w));
}

void sp_state_copy_insert(const struct sp_lane *lane, const starpu_data_handle_t from[4],
                          const starpu_data_handle_t to[4])
{
    struct starpu_task *t =
        sp_task_new(lane, &state_copy_cl, "copy", NULL, sizeof(struct sp_task_args));

    for (int i = 0; i < 4; i++)
        sp_task_buffer(t, from[i], STARPU_R);
    for (int i = 0; i < 4; i++)
        sp_task_buffer(t, to[i], STARPU_W);
    sp_task_submit(lane, t, 4 * floats(from[0]));
}

void sp_copy_insert(const struct sp_lane *lane, starpu_data_handle_t from, starpu_data_handle_t to)
{
    struct starpu_task *t = sp_task_new(lane, &copy_cl, "copy", NULL, sizeof(struct sp_task_args));

    sp_task_buffer(t, from, STARPU_R);
    sp_task_buffer(t, to, STARPU_W);
    sp_task_submit(lane, t, floats(to));
}

void sp_clear_insert(const struct sp_lane *lane, starpu_data_handle_t a)
{
    struct starpu_task *t =
        sp_task_new(lane, &clear_cl, "clear", NULL, sizeof(struct sp_task_args));

    sp_task_buffer(t, a, STARPU_W);
    sp_task_submit(lane, t, floats(a));
}
