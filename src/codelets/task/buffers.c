#include "codelets/task/buffers.h"
#include "codelets/task/codelet.h"
#include "sp_error.h"

void sp_buffers_add(struct sp_task *task, int row, const char *name, int n,
                    struct sp_tensor *const *tensors, enum sp_access access)
{
    struct sp_task_args *a = task->args;

    a->n_buffers[row] = (uint16_t)n;
    for (int i = 0; i < n; i++) {
        SP_NEED(tensors[i], "internal: %s: no tensor for %s", a->name, name);
        sp_task_use(task, tensors[i], access);
    }
}

void sp_buffers_read(void *const **at, const size_t **bytes, int n, void **to, size_t *to_bytes)
{
    for (int i = 0; i < n; i++) {
        to[i] = *(*at)++;
        to_bytes[i] = *(*bytes)++;
    }
}
