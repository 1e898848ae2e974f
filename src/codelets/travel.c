/*
 * Gradients of weights that travel from worker to worker, in two bytes an element:
 *
 *   travelling = round at random (travelling + own)   on every worker
 *   gradient += travelling                            at the journey's end
 *
 * Rounding to the nearest would lose, on every worker again, whatever is below half a step of the
 * sum so far.
 */
#include "codelets/insert.h"

struct travel_args {
    struct sp_task_args base;
    uint32_t stream;
};

#define TRAVEL_ADD_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(own, SP_READ)              /* f32 */                                                       \
    ONE(travelling, SP_READ_WRITE) /* += own, rounded */
SP_BUFFERS(travel_add, TRAVEL_ADD_BUFFERS)

static void travel_add(const struct sp_backend *k, const struct travel_add_buffers *b,
                       const struct travel_args *a)
{
    k->add_at_random(k, b->own_bytes / sizeof(float), a->stream, b->own, b->travelling);
}

#define TRAVEL_END_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(travelling, SP_READ)                                                                       \
    ONE(gradient, SP_READ_WRITE) /* f32, += travelling */
SP_BUFFERS(travel_end, TRAVEL_END_BUFFERS)

static void travel_end(const struct sp_backend *k, const struct travel_end_buffers *b,
                       const void *arg)
{
    (void)arg;
    k->add_to_f32(k, b->gradient_bytes / sizeof(float), b->travelling, b->gradient);
}

SP_CODELET(travel_add);
SP_CODELET(travel_end);

void sp_travel_add_insert(const struct sp_task_context *ctx, enum sp_dtype dtype, uint32_t stream,
                          struct sp_tensor *own, struct sp_tensor *travelling)
{
    struct sp_task *t =
        sp_task_new(ctx, &travel_add_cl, "travel", NULL, sizeof(struct travel_args));
    struct travel_args *a = t->args;

    a->base.dtype = dtype;
    a->stream = stream;
    SP_TASK_BUFFERS(t, travel_add, .own = own, .travelling = travelling);
    sp_task_submit(ctx, t, (double)sp_tensor_size(own) / sizeof(float));
}

void sp_travel_end_insert(const struct sp_task_context *ctx, enum sp_dtype dtype,
                          struct sp_tensor *travelling, struct sp_tensor *gradient)
{
    struct sp_task *t = sp_task_new(ctx, &travel_end_cl, "home", NULL, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->args)->dtype = dtype;
    SP_TASK_BUFFERS(t, travel_end, .travelling = travelling, .gradient = gradient);
    sp_task_submit(ctx, t, (double)sp_tensor_size(gradient) / sizeof(float));
}
