/*
 * Gradients of weights that travel from worker to worker in two bytes an element:
 *
 *   travelling = round at random (travelling + own)   on every worker
 *   gradient += travelling                            where its journey ends
 *
 * Rounded to the nearest, what is below half a step of the sum so far would be lost, on every worker again.
 */
#include "codelets/insert.h"

struct travel_args {
    struct sp_task_args base;
    uint32_t stream;
};

#define TRAVEL_ADD_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(own, STARPU_R)         /* f32 */                                                           \
    ONE(travelling, STARPU_RW) /* += own, rounded */
SP_BUFFERS(travel_add, TRAVEL_ADD_BUFFERS)

static void travel_add(const struct sp_backend *k, const struct travel_add_buffers *b,
                       const struct travel_args *a)
{
    k->add_at_random(k, b->own_bytes / sizeof(float), a->stream, b->own, b->travelling);
}

#define TRAVEL_END_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(travelling, STARPU_R)                                                                      \
    ONE(gradient, STARPU_RW) /* f32, += travelling */
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
                          starpu_data_handle_t own, starpu_data_handle_t travelling)
{
    struct starpu_task *t =
        sp_task_new(ctx, &travel_add_cl, "travel", NULL, sizeof(struct travel_args));
    struct travel_args *a = t->cl_arg;

    a->base.dtype = dtype;
    a->stream = stream;
    SP_TASK_BUFFERS(t, travel_add, .own = own, .travelling = travelling);
    sp_task_submit(ctx, t, (double)starpu_data_get_size(own) / sizeof(float));
}

void sp_travel_end_insert(const struct sp_task_context *ctx, enum sp_dtype dtype,
                          starpu_data_handle_t travelling, starpu_data_handle_t gradient)
{
    struct starpu_task *t =
        sp_task_new(ctx, &travel_end_cl, "home", NULL, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->cl_arg)->dtype = dtype;
    SP_TASK_BUFFERS(t, travel_end, .travelling = travelling, .gradient = gradient);
    sp_task_submit(ctx, t, (double)starpu_data_get_size(gradient) / sizeof(float));
}
