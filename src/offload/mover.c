#include "offload/mover.h"
#include "offload/host.h"
#include "sp_atomic.h"
#include "starpipe/order.h"
#include <stdlib.h>
#include <time.h>

void sp_mover_init(struct sp_mover *m, unsigned node, unsigned tier, int worker)
{
    *m = (struct sp_mover){.node = node, .tier = tier, .worker = worker};
    pthread_mutex_init(&m->mutex, NULL);
}

/* One user less. */
static void let_go(struct sp_mover *m, struct sp_visit *visit)
{
    if (!visit || --visit->users > 0)
        return;
    visit->next = m->idle;
    m->idle = visit;
}

void sp_mover_destroy(struct sp_mover *m)
{
    for (int i = 0; i < 2; i++)
        let_go(m, m->last[i]);
    for (struct sp_visit *v = m->idle, *next; v; v = next) {
        next = v->next;
        free(v);
    }
    pthread_mutex_destroy(&m->mutex);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void count(struct sp_move *move, int64_t bytes)
{
    if (move->live)
        sp_raise(move->peak, __atomic_add_fetch(move->live, bytes, __ATOMIC_RELAXED));
}

/*
 * Frees the buffer of a tensor that is written out. StarPU refuses while another thread looks at the
 * handle, which takes long only if that thread has no core: then again, a few times as a rule. After a
 * second the buffer stays: the tensor is right wherever it is.
 */
static bool drop(const struct sp_move_tensor *t, unsigned node)
{
    for (int i = 0; i < 20000; i++) {
        if (!starpu_data_evict_from_node(t->handle, node))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    }
    return false;
}

/* The tensor is written out. Nobody reads it before its backward, unless it is on its way back already;
 * then its buffer stays. */
static void written(void *arg)
{
    struct sp_move_tensor *t = arg;
    struct sp_move *move = t->move;
    struct sp_mover *m = move->mover;
    int64_t bytes = (int64_t)starpu_data_get_size(t->handle);
    unsigned position = 0;
    bool gone;

    starpu_data_release_on_node(t->handle, (int)m->tier);
    pthread_mutex_lock(&m->mutex);
    gone = !move->returning && drop(t, m->node);
    t->gone = gone;
    if (!t->clean)
        m->moved.left += (int64_t)sp_host_round((size_t)bytes);
    if (gone || move->visit) /* as what asks for it back has it */
        count(move, -bytes);
    if (--move->leaving == 0) {
        move->left_us = now_us();
        position = move->held;
        move->held = 0;
        let_go(m, move->visit);
    }
    pthread_mutex_unlock(&m->mutex);
    if (position)
        sp_order_release(m->worker, position);
}

/* After the tasks submitted so far have read it. */
static void leave(struct sp_move_tensor *t)
{
    /* RW: after every reader so far, and the only valid copy is there then. */
    int err =
        starpu_data_acquire_on_node_cb(t->handle, (int)t->move->mover->tier, STARPU_RW, written, t);

    STARPU_ASSERT_MSG(!err, "starpipe: a tensor cannot be offloaded");
}

void sp_move_out(struct sp_move *move, struct sp_mover *m, const starpu_data_handle_t *tensors,
                 int n, int64_t *live, int64_t *peak)
{
    *move = (struct sp_move){.mover = m,
                             .live = live,
                             .peak = peak,
                             .n = n,
                             .leaving = n,
                             .back = n,
                             .tensors = move->tensors};
    for (int i = 0; i < n; i++) {
        move->tensors[i] = (struct sp_move_tensor){.move = move, .handle = tensors[i]};
        leave(&move->tensors[i]);
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

/*
 * Fetches as for a task that reads all of them. starpu_data_prefetch_on_node would do if it did not look
 * whether the handle has a value in the order of submission, where the backward has read and freed it
 * already.
 */
static void fetch(struct sp_move *move)
{
    static struct starpu_codelet reader = {.nbuffers = STARPU_VARIABLE_NBUFFERS,
                                           .name = "bring back"};
    struct starpu_task *task = &move->reader;

    starpu_task_init(task);
    task->cl = &reader;
    task->nbuffers = move->back;
    if (move->back > STARPU_NMAXBUFS) { /* freed with the task */
        task->dyn_handles = calloc((size_t)move->back, sizeof *task->dyn_handles);
        task->dyn_modes = calloc((size_t)move->back, sizeof *task->dyn_modes);
        STARPU_ASSERT_MSG(task->dyn_handles && task->dyn_modes,
                          "starpipe: no memory to bring %d tensors back", move->back);
    }
    for (int i = 0; i < move->back; i++) {
        STARPU_TASK_SET_HANDLE(task, move->tensors[i].handle, i);
        STARPU_TASK_SET_MODE(task, STARPU_R, i);
    }
    starpu_prefetch_task_input_on_node_prio(task, move->mover->node, STARPU_DEFAULT_PRIO);
    starpu_task_clean(task);
}

void sp_move_back(struct sp_move *move)
{
    struct sp_mover *m = move->mover;

    pthread_mutex_lock(&m->mutex);
    move->returning = !move->visit;
    move->back_us = now_us();
    for (int i = 0; i < move->back; i++) {
        int64_t bytes = (int64_t)starpu_data_get_size(move->tensors[i].handle);

        m->moved.returned += (int64_t)sp_host_round((size_t)bytes);
        if (move->tensors[i].gone)
            count(move, bytes);
    }
    pthread_mutex_unlock(&m->mutex);
    fetch(move);
}

void sp_move_return(struct sp_move *move, struct sp_mover *m, const starpu_data_handle_t *tensors,
                    int n)
{
    *move = (struct sp_move){.mover = m, .n = n, .back = n, .tensors = move->tensors};
    for (int i = 0; i < n; i++)
        move->tensors[i] = (struct sp_move_tensor){.move = move, .handle = tensors[i]};
}

/* ---- visits ---------------------------------------------------------------------------------- */

static struct sp_visit *take_idle(struct sp_mover *m, int room)
{
    struct sp_visit **at = &m->idle, *visit;

    pthread_mutex_lock(&m->mutex);
    while (*at && (*at)->room < room)
        at = &(*at)->next;
    visit = *at;
    if (visit)
        *at = visit->next;
    pthread_mutex_unlock(&m->mutex);
    if (visit)
        return visit;
    visit = malloc(sizeof *visit + sizeof *visit->tensor * (size_t)room);
    STARPU_ASSERT_MSG(visit, "starpipe: no memory for a visit of %d tensors", room);
    visit->room = room;
    return visit;
}

struct sp_visit *sp_visit_new(struct sp_mover *m, const starpu_data_handle_t *tensors, int n,
                              int back, int clean)
{
    struct sp_visit *visit = take_idle(m, n);

    visit->users = 2;
    visit->move = (struct sp_move){
        .mover = m, .n = n, .leaving = n, .back = back, .visit = visit, .tensors = visit->tensor};
    for (int i = 0; i < n; i++)
        visit->tensor[i] =
            (struct sp_move_tensor){.move = &visit->move, .handle = tensors[i], .clean = i < clean};
    return visit;
}

void sp_visit_begin(struct sp_mover *m, unsigned position)
{
    if (m->last[1])
        sp_move_hold(&m->last[1]->move, position);
}

void sp_visit_end(struct sp_visit *visit)
{
    struct sp_mover *m = visit->move.mover;

    pthread_mutex_lock(&m->mutex);
    let_go(m, m->last[1]);
    m->last[1] = m->last[0];
    m->last[0] = visit;
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0, n = visit->move.n; i < n; i++)
        leave(&visit->tensor[i]);
}

void sp_visits_wait(struct sp_mover *m, unsigned position)
{
    for (int i = 0; i < 2; i++) {
        if (!m->last[i])
            continue;
        sp_move_hold(&m->last[i]->move, position);
        pthread_mutex_lock(&m->mutex);
        let_go(m, m->last[i]);
        pthread_mutex_unlock(&m->mutex);
        m->last[i] = NULL;
    }
}
