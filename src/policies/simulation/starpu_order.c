/*
 * The policies of starpipe/order.h. Each worker has a queue, a ring of slots indexed by program
 * position. A task that becomes ready is filed in its slot. A worker takes the slot of its next
 * position, or nothing, whatever the order in which StarPU makes tasks ready. This runs while tasks
 * do, by several threads, so it is no player of programs (player.h).
 */
#include "starpipe/order.h"
#include "policies/simulation/overtaking.h"
#include "policies/simulation/starpu_idle.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct slot {
    struct starpu_task *task; /* NULL: not ready yet */
    int64_t acquire, release;
    int holds;
    bool taken;
};

struct queue {
    starpu_pthread_mutex_t mutex;
    unsigned next;     /* first position that was not taken */
    unsigned cap;      /* ring size, a power of two */
    struct slot *ring; /* position k lives in ring[k & (cap-1)] */
    unsigned filed;    /* tasks in the ring; read without the mutex as a hint */
    int64_t live, bound;
    double held_since, held_us; /* held_since: of the next position; 0: it is not held */
};

static struct queue queues[STARPU_NMAXWORKERS];
static starpu_pthread_mutex_t free_mutex = STARPU_PTHREAD_MUTEX_INITIALIZER;
static struct starpu_task_list free_tasks;
static unsigned free_count;
static starpu_pthread_mutex_t setup_mutex = STARPU_PTHREAD_MUTEX_INITIALIZER;
static bool is_set_up;

static void set_up(void)
{
    STARPU_PTHREAD_MUTEX_LOCK(&setup_mutex);
    for (int w = 0; !is_set_up && w < STARPU_NMAXWORKERS; w++) {
        STARPU_PTHREAD_MUTEX_INIT(&queues[w].mutex, NULL);
        queues[w].next = 1;
        queues[w].bound = INT64_MAX;
    }
    is_set_up = true;
    STARPU_PTHREAD_MUTEX_UNLOCK(&setup_mutex);
}

/* The slot of a position that the ring holds. */
static struct slot *slot_in(const struct queue *q, unsigned order)
{
    return &q->ring[order & (q->cap - 1)];
}

/* The slot of a position at or after next; the ring grows to hold it. The caller holds the
 * mutex. */
static struct slot *slot_at(struct queue *q, unsigned order)
{
    STARPU_ASSERT_MSG(order >= q->next && order - q->next < 1u << 30,
                      "starpipe: position %u was taken already (next is %u)", order, q->next);
    if (order - q->next >= q->cap) {
        unsigned cap = q->cap ? q->cap : 256;
        struct slot *ring;

        while (order - q->next >= cap)
            cap *= 2;
        ring = calloc(cap, sizeof *ring);
        STARPU_ASSERT_MSG(ring, "starpipe: no memory for a program window of %u", cap);
        for (unsigned k = 0; k < q->cap; k++)
            ring[(q->next + k) & (cap - 1)] = *slot_in(q, q->next + k);
        free(q->ring);
        q->ring = ring;
        q->cap = cap;
    }
    return slot_in(q, order);
}

void sp_order_bound(int worker, int64_t bytes)
{
    set_up();
    queues[worker].bound = bytes;
}

void sp_order_memory(int worker, unsigned order, int64_t acquire, int64_t release)
{
    struct queue *q = &queues[worker];
    struct slot *s;

    set_up();
    STARPU_PTHREAD_MUTEX_LOCK(&q->mutex);
    s = slot_at(q, order);
    s->acquire = acquire;
    s->release = release;
    STARPU_PTHREAD_MUTEX_UNLOCK(&q->mutex);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

void sp_order_hold(int worker, unsigned order)
{
    struct queue *q = &queues[worker];

    set_up();
    STARPU_PTHREAD_MUTEX_LOCK(&q->mutex);
    slot_at(q, order)->holds++;
    STARPU_PTHREAD_MUTEX_UNLOCK(&q->mutex);
}

static void wake(unsigned worker)
{
    sp_idle_wake(worker);
    starpu_wake_worker_relax_light(worker);
}

void sp_order_release(int worker, unsigned order)
{
    struct queue *q = &queues[worker];
    struct slot *s;

    STARPU_PTHREAD_MUTEX_LOCK(&q->mutex);
    s = slot_at(q, order);
    STARPU_ASSERT_MSG(s->holds > 0, "starpipe: position %u of worker %d is not held", order,
                      worker);
    s->holds--;
    if (q->held_since > 0 && order == q->next && !s->holds) {
        q->held_us += now_us() - q->held_since;
        q->held_since = 0;
    }
    STARPU_PTHREAD_MUTEX_UNLOCK(&q->mutex);
    wake((unsigned)worker);
}

static bool (*is_busy)(int worker);

void sp_order_busy(bool (*busy)(int worker))
{
    is_busy = busy;
}

double sp_order_held_us(int worker)
{
    struct queue *q = &queues[worker];
    double us;

    STARPU_PTHREAD_MUTEX_LOCK(&q->mutex);
    us = q->held_us;
    STARPU_PTHREAD_MUTEX_UNLOCK(&q->mutex);
    return us;
}

void sp_order_forget(int worker)
{
    queues[worker].live = 0;
}

void sp_order_reset(void)
{
    for (int w = 0; w < STARPU_NMAXWORKERS; w++) {
        free(queues[w].ring);
        queues[w].ring = NULL;
        queues[w].cap = queues[w].filed = 0;
        queues[w].next = 1;
        queues[w].live = 0;
        queues[w].bound = INT64_MAX;
        queues[w].held_since = queues[w].held_us = 0;
    }
}

/* The worker of a program task: the only bit of its mask. */
static int worker_of(const struct starpu_task *task)
{
    int worker = -1;

    for (unsigned i = 0; i < task->workerids_len; i++) {
        uint32_t word = task->workerids[i];

        if (!word)
            continue;
        STARPU_ASSERT_MSG(worker < 0 && !(word & (word - 1)),
                          "starpipe: task %s has a position but more than one worker",
                          starpu_task_get_name((struct starpu_task *)task));
        worker = (int)(32 * i) + __builtin_ctz(word);
    }
    STARPU_ASSERT_MSG(worker >= 0, "starpipe: task %s has a position but no worker",
                      starpu_task_get_name((struct starpu_task *)task));
    return worker;
}

/* Others may move data for this worker while it waits. */
static void lock(starpu_pthread_mutex_t *mutex)
{
    starpu_worker_relax_on();
    STARPU_PTHREAD_MUTEX_LOCK(mutex);
    starpu_worker_relax_off();
}

static void init_sched(unsigned ctx)
{
    (void)ctx;
    set_up();
    sp_idle_start();
    starpu_task_list_init(&free_tasks);
    free_count = 0;
}

static void deinit_sched(unsigned ctx)
{
    (void)ctx;
    sp_order_reset();
}

static int push_free(struct starpu_task *task)
{
    lock(&free_mutex);
    starpu_task_list_push_back(&free_tasks, task);
    __atomic_store_n(&free_count, free_count + 1, __ATOMIC_RELEASE);
    starpu_push_task_end(task);
    STARPU_PTHREAD_MUTEX_UNLOCK(&free_mutex);
    for (unsigned w = 0; w < starpu_worker_get_count(); w++)
        wake(w);
    return 0;
}

static int push_task(struct starpu_task *task)
{
    struct queue *q;
    struct slot *s;
    int worker;

    if (!task->workerorder)
        return push_free(task);

    worker = worker_of(task);
    q = &queues[worker];
    lock(&q->mutex);
    s = slot_at(q, task->workerorder);
    STARPU_ASSERT_MSG(!s->task && !s->taken, "starpipe: two tasks at position %u of worker %d",
                      task->workerorder, worker);
    s->task = task;
    __atomic_store_n(&q->filed, q->filed + 1, __ATOMIC_RELEASE);
    starpu_push_task_end(task);
    STARPU_PTHREAD_MUTEX_UNLOCK(&q->mutex);
    wake((unsigned)worker);
    return 0;
}

/* Moves next past the positions that were taken out of order. */
static void advance(struct queue *q)
{
    while (slot_in(q, q->next)->taken)
        *slot_in(q, q->next++) = (struct slot){0};
}

/* The position to run now, or 0. Strict: the next one, if ready. Ready: by the rule of
 * overtaking. */
static unsigned choose(struct queue *q, bool ready)
{
    struct sp_overtaking o = sp_overtaking_begin(q->live, q->bound);
    const struct slot *next;

    if (!q->cap || !q->filed)
        return 0;
    next = slot_in(q, q->next);
    if (next->task && !next->holds)
        return q->next;
    if (next->task && q->held_since <= 0 && !(is_busy && is_busy((int)(q - queues))))
        q->held_since = now_us();
    for (unsigned k = 0; ready && k < q->cap; k++) {
        const struct slot *s = slot_in(q, q->next + k);

        if (s->taken)
            continue;
        if (s->task && !s->holds && sp_overtaking_fits(&o, s->acquire))
            return q->next + k;
        sp_overtaking_pass(&o, s->acquire, s->release);
    }
    return 0;
}

static struct starpu_task *take(struct queue *q, bool ready)
{
    struct starpu_task *task = NULL;
    unsigned order;

    if (!__atomic_load_n(&q->filed, __ATOMIC_ACQUIRE))
        return NULL;
    lock(&q->mutex);
    order = choose(q, ready);
    if (order) {
        struct slot *s = slot_in(q, order);

        task = s->task;
        /* acquire and release count at once: the worker runs nothing else meanwhile */
        q->live += s->acquire - s->release;
        *s = (struct slot){.taken = true};
        __atomic_store_n(&q->filed, q->filed - 1, __ATOMIC_RELEASE);
        advance(q);
    }
    STARPU_PTHREAD_MUTEX_UNLOCK(&q->mutex);
    return task;
}

static struct starpu_task *take_free(unsigned worker)
{
    struct starpu_task *task = NULL;

    if (!__atomic_load_n(&free_count, __ATOMIC_ACQUIRE))
        return NULL;
    lock(&free_mutex);
    for (struct starpu_task *t = starpu_task_list_begin(&free_tasks);
         t != starpu_task_list_end(&free_tasks) && !task; t = starpu_task_list_next(t))
        if (starpu_worker_can_execute_task_first_impl(worker, t, NULL))
            task = t;
    if (task) {
        starpu_task_list_erase(&free_tasks, task);
        __atomic_store_n(&free_count, free_count - 1, __ATOMIC_RELEASE);
    }
    STARPU_PTHREAD_MUTEX_UNLOCK(&free_mutex);
    return task;
}

static struct starpu_task *pop(bool ready)
{
    unsigned worker = (unsigned)starpu_worker_get_id_check();
    struct starpu_task *task = take(&queues[worker], ready);

    task = task ? task : take_free(worker);
    sp_idle_note(worker, task != NULL);
    return task;
}

static struct starpu_task *pop_strict(unsigned ctx)
{
    (void)ctx;
    return pop(false);
}

static struct starpu_task *pop_ready(unsigned ctx)
{
    (void)ctx;
    return pop(true);
}

struct starpu_sched_policy sp_order_strict = {
    .init_sched = init_sched,
    .deinit_sched = deinit_sched,
    .push_task = push_task,
    .pop_task = pop_strict,
    .policy_name = "starpipe",
    .policy_description = "each worker runs its tasks in program order",
    .worker_type = STARPU_WORKER_LIST,
};

struct starpu_sched_policy sp_order_ready = {
    .init_sched = init_sched,
    .deinit_sched = deinit_sched,
    .push_task = push_task,
    .pop_task = pop_ready,
    .policy_name = "starpipe-ready",
    .policy_description = "each worker runs the earliest ready task of its program",
    .worker_type = STARPU_WORKER_LIST,
};

static struct starpu_sched_policy *policies[] = {&sp_order_strict, &sp_order_ready, NULL};

struct starpu_sched_policy **starpu_get_sched_lib_policies(void)
{
    return policies;
}

struct starpu_sched_policy *starpu_get_sched_lib_policy(const char *name)
{
    for (int i = 0; policies[i]; i++)
        if (strcmp(policies[i]->policy_name, name) == 0)
            return policies[i];
    return NULL;
}
