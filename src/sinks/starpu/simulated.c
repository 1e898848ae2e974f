#include "sinks/starpu/simulated.h"
#include "codelets/task/codelet.h"
#include <stdlib.h>

/* The time of a task without cost: so little that a million tasks take no more than a
 * nanosecond. */
static const double nothing_us = 1e-9;

/* The last writer of a buffer in the order of submission. */
struct buffer {
    starpu_data_handle_t handle;
    bool received;             /* no task has read the message received in it */
    struct sp_op_time *writer; /* NULL: no op of this step */
    int number;                /* of the task */
    struct buffer *next;       /* of the same bucket */
};

enum { BUCKETS = 1 << 14 };
static struct buffer *buckets[BUCKETS];

static struct buffer *buffer_of(starpu_data_handle_t handle)
{
    struct buffer **at = &buckets[(uintptr_t)handle / 64 % BUCKETS];

    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof **at);
        STARPU_ASSERT_MSG(*at, "starpipe: no memory for a buffer of a simulated run");
        (*at)->handle = handle;
    }
    return *at;
}

void sp_simulated_forget(void)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (struct buffer *b = buckets[i], *next; b; b = next) {
            next = b->next;
            free(b);
        }
        buckets[i] = NULL;
    }
}

void sp_simulated_received(starpu_data_handle_t handle, bool begins)
{
    struct buffer *b = buffer_of(handle);

    b->received = begins;
    b->writer = NULL;
}

void sp_simulated_sent(starpu_data_handle_t handle)
{
    const struct buffer *b = buffer_of(handle);

    if (b->writer && (!b->writer->first_output || b->number < b->writer->first_output - 1))
        b->writer->first_output = b->number + 1;
}

static struct sp_op_time *unit_of(const struct sp_task_args *a)
{
    struct sp_op_time *op;

    if (!a->meter || !a->meter->times || a->op_index < 0 || a->op_index >= a->meter->n_ops)
        return NULL;
    op = &a->meter->times[a->op_index];
    return op->leads ? op->leads : op;
}

void sp_simulated_add(struct starpu_task *task)
{
    struct sp_task_args *a = task->cl_arg;
    struct sp_op_time *unit = unit_of(a);

    if (unit) {
        a->number = unit->tasks++;
        unit->flops += task->flops;
    }
    for (int i = 0; i < task->nbuffers; i++) {
        struct buffer *b = buffer_of(STARPU_TASK_GET_HANDLE(task, i));
        enum starpu_data_access_mode mode = STARPU_TASK_GET_MODE(task, i);

        if (b->received && unit && mode & STARPU_R)
            unit->last_input = a->number;
        b->received = false;
        if (mode & STARPU_W) {
            b->writer = unit;
            b->number = a->number;
        }
    }
}

/* The fraction of its unit's time that a task gets. */
static double part_of(const struct sp_op_time *unit, int number, double flops)
{
    int first = unit->last_input, last = unit->first_output ? unit->first_output : unit->tasks;

    if (unit->share == SP_SHARE_FLOPS && unit->flops > 0)
        return flops / unit->flops;
    if (first >= last) {
        first = 0;
        last = unit->tasks;
    }
    return number >= first && number < last ? 1.0 / (last - first) : 0;
}

double sp_simulated_us(struct starpu_task *task, struct starpu_perfmodel_arch *arch, unsigned impl)
{
    const struct sp_task_args *a = task->cl_arg;
    const struct sp_op_time *unit = unit_of(a);

    (void)arch, (void)impl;
    if (!unit)
        return nothing_us;
    return unit->us * part_of(unit, a->number, task->flops) + nothing_us;
}
