#include "offload/mover.h"
#include "offload/host.h"
#include "offload/tensor_sums.h"
#include "sinks/starpu/tensor.h"
#include "sp_atomic.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "transport/clock.h"
#include <stdlib.h>

void sp_mover_init(struct sp_mover *m, unsigned node, unsigned tier, int worker)
{
    *m = (struct sp_mover){.node = node, .tier = tier, .worker = worker};
    pthread_mutex_init(&m->mutex, NULL);
}

void sp_mover_destroy(struct sp_mover *m, struct sp_move *moves, size_t n)
{
    for (size_t i = 0; moves && i < n; i++)
        free(moves[i].reader);
    pthread_mutex_destroy(&m->mutex);
}

static void count(struct sp_move *move, int64_t bytes)
{
    sp_raise(move->count.peak, __atomic_add_fetch(move->count.live, bytes, __ATOMIC_RELAXED));
}

/* Returns true if another thread has requested the tensor on `node` again: a message of its
 * backward may have been submitted meanwhile. Its request waits for this very thread. */
static bool is_wanted(starpu_data_handle_t handle, unsigned node)
{
    int allocated, valid, loading, requested;

    starpu_data_query_status2(handle, (int)node, &allocated, &valid, &loading, &requested);
    return loading || requested;
}

/* Tries once to free the buffer of a tensor, unless its unit is being fetched; returns false if it
 * was not freed. It holds the mutex, so that a fetch finds the tensor either in memory or gone. */
static bool try_to_drop(struct sp_move_tensor *t, bool *returning)
{
    struct sp_move *move = t->move;
    struct sp_mover *m = move->mover;

    pthread_mutex_lock(&m->mutex);
    *returning = move->returning;
    t->gone = !*returning && !starpu_data_evict_from_node(sp_handle(t->tensor), m->node);
    if (t->gone)
        count(move, -(int64_t)sp_tensor_size(t->tensor));
    pthread_mutex_unlock(&m->mutex);
    return t->gone;
}

/*
 * Frees the buffer of a tensor that is written out. StarPU refuses while another thread looks at
 * the handle, so this tries again, usually a few times. After a second, or as soon as another
 * thread has requested the tensor, it gives up and the buffer stays, which is harmless: the value
 * is right on either node.
 */
static void drop(struct sp_move_tensor *t)
{
    bool returning;

    for (int i = 0; i < 20000; i++) {
        if (try_to_drop(t, &returning) || returning ||
            is_wanted(sp_handle(t->tensor), t->move->mover->node))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    }
}

/* Names the tensor for the message that its checksum is wrong. */
static void name_tensor(const struct sp_move_tensor *t)
{
    const struct sp_move *move = t->move;
    char name[96];

    if (!sp_tensor_sums_on())
        return;
    snprintf(name, sizeof name, "activations %s, tensor %d of %d", move->name,
             (int)(t - move->tensors) + 1, move->n);
    sp_tensor_sum_name(
        (uintptr_t)starpu_data_handle_to_pointer(sp_handle(t->tensor), move->mover->tier), name);
}

/* The tensor is written out. No task reads it before its backward, so its buffer is freed, unless
 * the unit is being fetched already. */
static void written(void *arg)
{
    struct sp_move_tensor *t = arg;
    struct sp_move *move = t->move;
    struct sp_mover *m = move->mover;
    int64_t bytes = (int64_t)sp_tensor_size(t->tensor);
    unsigned position = 0;

    name_tensor(t);
    starpu_data_release_on_node(sp_handle(t->tensor), (int)m->tier);
    drop(t);
    pthread_mutex_lock(&m->mutex);
    m->moved.left += (int64_t)sp_host_round((size_t)bytes);
    if (--move->leaving == 0) {
        move->left_us = sp_clock_us(CLOCK_REALTIME);
        position = move->held;
        move->held = 0;
    }
    pthread_mutex_unlock(&m->mutex);
    if (position)
        sp_order_release(m->worker, position);
}

void sp_move_out(struct sp_move *move, struct sp_mover *m, struct sp_tensor *const *tensors, int n,
                 struct sp_memory_count count)
{
    struct sp_move begun = {.mover = m,
                            .count = count,
                            .n = n,
                            .leaving = n,
                            .tensors = move->tensors,
                            .reader = move->reader};

    snprintf(begun.name, sizeof begun.name, "%s", move->name);
    *move = begun;
    for (int i = 0; i < n; i++) {
        int err;

        move->tensors[i] = (struct sp_move_tensor){.move = move, .tensor = tensors[i]};
        /* RW waits for every reader so far, and makes the tier's copy the only valid one. */
        err = starpu_data_acquire_on_node_cb(sp_handle(tensors[i]), (int)m->tier, STARPU_RW,
                                             written, &move->tensors[i]);
        STARPU_ASSERT_MSG(!err, "starpipe: a tensor cannot be offloaded");
    }
}

void sp_move_hold(struct sp_move *move, unsigned position)
{
    struct sp_mover *m = move->mover;

    pthread_mutex_lock(&m->mutex);
    if (move->leaving) {
        move->held = position;
        sp_order_hold(m->worker, position);
    }
    pthread_mutex_unlock(&m->mutex);
}

void sp_move_settle(struct sp_move *move)
{
    struct sp_mover *m = move->mover;
    bool leaving = true;

    while (leaving) {
        pthread_mutex_lock(&m->mutex);
        leaving = move->leaving > 0;
        pthread_mutex_unlock(&m->mutex);
        if (leaving)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/*
 * Fetches the tensors as for a task that reads all of them. starpu_data_prefetch_on_node will not
 * do: it checks in the order of submission that the handle has a value, and there the backward has
 * already read and freed it.
 */
static void fetch(struct sp_move *move)
{
    static struct starpu_codelet reader = {.nbuffers = STARPU_VARIABLE_NBUFFERS,
                                           .name = "bring back"};
    struct starpu_task *task = move->reader;

    if (!task)
        task = move->reader = malloc(sizeof *task);
    SP_NEED(task, "no memory to bring %d tensors back", move->n);
    starpu_task_init(task);
    task->cl = &reader;
    task->nbuffers = move->n;
    if (move->n > STARPU_NMAXBUFS) { /* freed with the task */
        task->dyn_handles = calloc((size_t)move->n, sizeof *task->dyn_handles);
        task->dyn_modes = calloc((size_t)move->n, sizeof *task->dyn_modes);
        SP_NEED(task->dyn_handles && task->dyn_modes, "no memory to bring %d tensors back",
                move->n);
    }
    for (int i = 0; i < move->n; i++) {
        STARPU_TASK_SET_HANDLE(task, sp_handle(move->tensors[i].tensor), i);
        STARPU_TASK_SET_MODE(task, STARPU_R, i);
    }
    starpu_prefetch_task_input_on_node_prio(task, move->mover->node, STARPU_DEFAULT_PRIO);
    starpu_task_clean(task);
}

void sp_move_back(struct sp_move *move)
{
    struct sp_mover *m = move->mover;

    pthread_mutex_lock(&m->mutex);
    move->returning = true;
    move->back_us = sp_clock_us(CLOCK_REALTIME);
    for (int i = 0; i < move->n; i++) {
        int64_t bytes = (int64_t)sp_tensor_size(move->tensors[i].tensor);

        m->moved.returned += (int64_t)sp_host_round((size_t)bytes);
        if (move->tensors[i].gone)
            count(move, bytes);
    }
    pthread_mutex_unlock(&m->mutex);
    fetch(move);
}
