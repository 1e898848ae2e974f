/*
 * Tasks that compute nothing: an op that keeps the tensors that it received for its backward, and a
 * place in the worker's order before which tensors take no memory, or after which nobody reads them.
 */
#include "codelets/insert.h"

#define HOLD_BUFFERS(ONE, OPTIONAL, LIST) LIST(held, SP_READ)
SP_BUFFERS(hold, HOLD_BUFFERS)

static void hold(const struct sp_backend *k, const struct hold_buffers *b,
                 const struct sp_task_args *a)
{
    (void)k, (void)b, (void)a;
}

SP_CODELET(hold);

void sp_hold_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int n,
                    struct sp_tensor *const *held, int64_t stashed)
{
    struct sp_task *task = sp_task_new(ctx, &hold_cl, "hold", sh, sizeof(struct sp_task_args));

    SP_TASK_BUFFERS(task, hold, .held = held, .n_held = n);
    if (stashed >= 0)
        sp_task_acquires(task, stashed);
    else
        sp_task_releases(task, -stashed);
    sp_task_submit(ctx, task, 0);
}

#define ROOM_BUFFERS(ONE, OPTIONAL, LIST) LIST(tensors, SP_WRITE)
SP_BUFFERS(room, ROOM_BUFFERS)

static void room(const struct sp_backend *k, const struct room_buffers *b,
                 const struct sp_task_args *a)
{
    (void)k, (void)b, (void)a;
}

SP_CODELET(room);

void sp_room_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int n,
                    struct sp_tensor *const *tensors)
{
    struct sp_task *task = sp_task_new(ctx, &room_cl, "room", sh, sizeof(struct sp_task_args));

    SP_TASK_BUFFERS(task, room, .tensors = tensors, .n_tensors = n);
    sp_task_submit(ctx, task, 0);
}
