#include "codelets/task/buffers.h"
#include "codelets/task/codelet.h"
#include "sp_error.h"
#include <stdlib.h>

/* Past STARPU_NMAXBUFS buffers StarPU reads, and frees, arrays of the task; they double. */
static void make_room(struct starpu_task *task, int used)
{
    size_t room = 2 * (size_t)used;
    starpu_data_handle_t *handles = realloc(task->dyn_handles, room * sizeof *handles);
    enum starpu_data_access_mode *modes = realloc(task->dyn_modes, room * sizeof *modes);

    SP_NEED(handles && modes, "out of memory for a task");
    for (int i = 0; i < STARPU_NMAXBUFS && !task->dyn_handles; i++) {
        handles[i] = task->handles[i];
        modes[i] = task->modes[i];
    }
    task->dyn_handles = handles;
    task->dyn_modes = modes;
}

static void append(struct starpu_task *task, starpu_data_handle_t handle,
                   enum starpu_data_access_mode mode)
{
    int i = task->nbuffers++;

    if (i == STARPU_NMAXBUFS || (i > STARPU_NMAXBUFS && !(i & (i - 1))))
        make_room(task, i);
    if (task->dyn_handles) {
        task->dyn_handles[i] = handle;
        task->dyn_modes[i] = mode;
    } else {
        task->handles[i] = handle;
        task->modes[i] = mode;
    }
}

void sp_buffers_add(struct starpu_task *task, int row, const char *name, int n,
                    const starpu_data_handle_t *handles, enum starpu_data_access_mode mode)
{
    struct sp_task_args *a = task->cl_arg;

#ifdef HAVE_SIMGRID
    if (mode == STARPU_SCRATCH)
        return; /* StarPU would allocate it, for kernels that do not run */
#endif
    a->n_buffers[row] = (uint16_t)n;
    for (int i = 0; i < n; i++) {
        STARPU_ASSERT_MSG(handles[i], "starpipe: %s: no handle for %s", a->name, name);
        append(task, handles[i], mode);
    }
}

int sp_buffers_read(void *const *buffers, int n, void **at, size_t *bytes)
{
    for (int i = 0; i < n; i++) {
        const struct starpu_vector_interface *v = buffers[i];

        at[i] = (void *)STARPU_VECTOR_GET_PTR(v);
        bytes[i] = (size_t)STARPU_VECTOR_GET_NX(v) * STARPU_VECTOR_GET_ELEMSIZE(v);
    }
    return n;
}
