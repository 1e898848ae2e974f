/* The sink that runs a graph: StarPU, with the scheduler, transport and offload of this process. */
#ifndef SP_SINK_STARPU_H
#define SP_SINK_STARPU_H

#include "sinks/sink.h"
#include <starpu.h>

static inline starpu_data_handle_t sp_handle(const struct sp_tensor *t)
{
    return t->handle;
}

/* A tensor on a handle that the caller registers and unregisters. */
struct sp_tensor sp_tensor_on(starpu_data_handle_t handle);

void sp_starpu_insert(const struct sp_task_context *ctx, struct sp_task *from, double flops);

/* Call before the first task: do workers follow programs, as under the policies of
 * starpipe/order.h? Otherwise tasks have priorities, and count the `workers` that run nothing. */
void sp_tasks_follow(bool programs, int workers);

#endif
