/*
 * The end of a step, one parameter block at a time:
 *
 *   norm^2 = sum over blocks of sum of g^2 (replicas once)
 *   AdamW with factor g, factor = min(1, clip / norm); decoupled weight decay on matrices and tables; g = 0
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"

/* Elements of a buffer of f32. */
static size_t length(void *const *buffers, int i)
{
    return sp_buffer_bytes(buffers, i) / sizeof(float);
}

/* g R, tally RW */
static void sumsq(const struct sp_backend *k, void *buffers[], void *arg)
{
    double *tally = sp_buffer(buffers, 1);

    (void)arg;
    k->sumsq(k, length(buffers, 0), sp_buffer(buffers, 0), tally + SP_TALLY_SUMSQ);
}

struct sum_args {
    struct sp_task_args base;
    bool both;
};

/* a RW, b R or RW */
static void sum(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct sum_args *args = arg;
    void *a = sp_buffer(buffers, 0), *b = sp_buffer(buffers, 1);
    size_t bytes = sp_buffer_bytes(buffers, 0);

    k->add(k, bytes / sp_dtype_bytes(args->base.dtype), b, a);
    if (args->both)
        k->copy(k, bytes, a, b);
}

struct update_args {
    struct sp_task_args base;
    const struct sp_params *params;
    enum sp_block_kind kind;
    int layer;
    size_t first; /* element of the block that the buffers begin with */
    struct sp_adamw hp;
    float decay;
    const struct sp_backend *k; /* while the task runs, as what follows */
    float *w, *g, *m, *v;
    char *low;
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
    a->k->adamw(a->k, to - from, &a->hp, a->w + at, a->g + at, a->m + at, a->v + at,
                a->low ? a->low + at * sp_dtype_bytes(a->base.dtype) : NULL);
}

/* w RW, g RW, m RW, v RW, (rounded w RW) */
static void update(const struct sp_backend *k, void *buffers[], void *arg)
{
    struct update_args *a = arg;

    a->k = k;
    a->w = sp_buffer(buffers, 0);
    a->g = sp_buffer(buffers, 1);
    a->m = sp_buffer(buffers, 2);
    a->v = sp_buffer(buffers, 3);
    a->low = a->base.dtype == SP_F32 ? NULL : sp_buffer(buffers, 4);
    a->n = length(buffers, 0);
    sp_block_each(a->params, a->kind, a->layer, update_tensor, a);
    if (a->base.dtype == SP_F32)
        sp_check_finite(&a->base, k, "w", a->w, a->n);
    else
        sp_check_finite(&a->base, k, "rounded w", a->low, a->n);
}

/* w R, rounded w W */
static void round_weights(const struct sp_backend *k, void *buffers[], void *arg)
{
    (void)arg;
    k->round(k, length(buffers, 0), sp_buffer(buffers, 0), sp_buffer(buffers, 1));
}

struct state_copy_args {
    struct sp_task_args base;
    int n;
};

/* n of R, then as many copies W */
static void state_copy(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct state_copy_args *a = arg;

    for (int i = 0; i < a->n; i++)
        k->copy(k, sp_buffer_bytes(buffers, i), sp_buffer(buffers, i),
                sp_buffer(buffers, a->n + i));
}

/* from R, to W */
static void copy(const struct sp_backend *k, void *buffers[], void *arg)
{
    (void)arg;
    k->copy(k, sp_buffer_bytes(buffers, 0), sp_buffer(buffers, 0), sp_buffer(buffers, 1));
}

/* a W */
static void clear(const struct sp_backend *k, void *buffers[], void *arg)
{
    (void)arg;
    k->clear(k, sp_buffer_bytes(buffers, 0), sp_buffer(buffers, 0));
}

SP_BODY(sumsq)
SP_BODY(sum)
SP_BODY(update)
SP_BODY(round_weights)
SP_BODY(state_copy)
SP_BODY(copy)
SP_BODY(clear)

SP_MODEL(sumsq);
SP_MODEL(clear);
SP_MODEL(copy);
SP_MODEL(state_copy);
SP_MODEL(sum);
SP_MODEL(update);
SP_MODEL(round_weights);

static struct starpu_codelet sumsq_cl = {
    SP_DEVICES(sumsq),     .nbuffers = 2,   .modes = {STARPU_R, STARPU_RW},
    .model = &sumsq_model, .name = "sumsq",
};

static struct starpu_codelet sum_cl = {
    SP_DEVICES(sum),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &sum_model,
    .name = "sum",
};

static struct starpu_codelet update_cl = {
    SP_DEVICES(update),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &update_model,
    .name = "update",
};

static struct starpu_codelet round_weights_cl = {
    SP_DEVICES(round_weights),     .nbuffers = 2,           .modes = {STARPU_R, STARPU_W},
    .model = &round_weights_model, .name = "round_weights",
};

static struct starpu_codelet state_copy_cl = {
    SP_DEVICES(state_copy),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &state_copy_model,
    .name = "state_copy",
};

static struct starpu_codelet clear_cl = {
    SP_DEVICES(clear), .nbuffers = 1, .modes = {STARPU_W}, .model = &clear_model, .name = "clear",
};

static struct starpu_codelet copy_cl = {
    SP_DEVICES(copy),     .nbuffers = 2,  .modes = {STARPU_R, STARPU_W},
    .model = &copy_model, .name = "copy",
};

static double f32_of(starpu_data_handle_t handle)
{
    return (double)(starpu_data_get_size(handle) / sizeof(float));
}

void sp_sumsq_insert(const struct sp_lane *lane, starpu_data_handle_t g, starpu_data_handle_t tally)
{
    struct starpu_task *t = sp_task_new(lane, &sumsq_cl, "norm", NULL, sizeof(struct sp_task_args));

    sp_task_buffer(t, g, STARPU_R);
    sp_task_buffer(t, tally, STARPU_RW);
    sp_task_submit(lane, t, 2.0 * f32_of(g));
}

void sp_sum_insert(const struct sp_lane *lane, enum sp_dtype dtype, starpu_data_handle_t a,
                   starpu_data_handle_t b, bool both)
{
    struct starpu_task *t = sp_task_new(lane, &sum_cl, "sum", NULL, sizeof(struct sum_args));
    struct sum_args *args = t->cl_arg;

    args->both = both;
    args->base.dtype = dtype;
    sp_task_buffer(t, a, STARPU_RW);
    sp_task_buffer(t, b, both ? STARPU_RW : STARPU_R);
    sp_task_submit(lane, t, f32_of(a));
}

void sp_update_insert(const struct sp_lane *lane, const struct sp_params *params,
                      enum sp_block_kind kind, int layer, size_t first, const struct sp_update *hp,
                      starpu_data_handle_t w, starpu_data_handle_t g, starpu_data_handle_t m,
                      starpu_data_handle_t v, enum sp_dtype dtype, starpu_data_handle_t low)
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
    if (dtype != SP_F32)
        sp_task_buffer(t, low, STARPU_RW); /* what lies between tensors stays */
    a->base.dtype = dtype;
    sp_task_submit(lane, t, 15.0 * f32_of(w));
}

void sp_round_insert(const struct sp_lane *lane, starpu_data_handle_t w, enum sp_dtype dtype,
                     starpu_data_handle_t low)
{
    struct starpu_task *t =
        sp_task_new(lane, &round_weights_cl, "round", NULL, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->cl_arg)->dtype = dtype;
    sp_task_buffer(t, w, STARPU_R);
    sp_task_buffer(t, low, STARPU_W);
    sp_task_submit(lane, t, f32_of(w));
}

void sp_state_copy_insert(const struct sp_lane *lane, int n, const starpu_data_handle_t *from,
                          const starpu_data_handle_t *to)
{
    struct starpu_task *t =
        sp_task_new(lane, &state_copy_cl, "copy", NULL, sizeof(struct state_copy_args));

    ((struct state_copy_args *)t->cl_arg)->n = n;
    for (int i = 0; i < n; i++)
        sp_task_buffer(t, from[i], STARPU_R);
    for (int i = 0; i < n; i++)
        sp_task_buffer(t, to[i], STARPU_W);
    sp_task_submit(lane, t, n * f32_of(from[0]));
}

void sp_copy_insert(const struct sp_lane *lane, starpu_data_handle_t from, starpu_data_handle_t to)
{
    struct starpu_task *t = sp_task_new(lane, &copy_cl, "copy", NULL, sizeof(struct sp_task_args));

    sp_task_buffer(t, from, STARPU_R);
    sp_task_buffer(t, to, STARPU_W);
    sp_task_submit(lane, t, f32_of(to));
}

void sp_clear_insert(const struct sp_lane *lane, starpu_data_handle_t a)
{
    struct starpu_task *t =
        sp_task_new(lane, &clear_cl, "clear", NULL, sizeof(struct sp_task_args));

    sp_task_buffer(t, a, STARPU_W);
    sp_task_submit(lane, t, f32_of(a));
}
