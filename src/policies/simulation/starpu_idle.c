#include "policies/simulation/starpu_idle.h"
#include "starpipe/order.h"
#include <semaphore.h>
#include <time.h>

/* bounded, since workers also move data for StarPU; the least of a worker that always rests */
enum { MOST_REST_NS = 500000, ASIDE_REST_NS = 5000 };

static struct worker {
    bool waits;
    double since_ns; /* when the wait began */
    sem_t work;      /* posted when work may have come */
} workers[STARPU_NMAXWORKERS];
static int waiting; /* workers */
static long rest_ns;
static int aside = -1;
static void (*tell)(void);

void sp_order_rest(long ns)
{
    rest_ns = ns;
}

int sp_order_waiting(void)
{
    return __atomic_load_n(&waiting, __ATOMIC_SEQ_CST);
}

void sp_order_tell_waiting(void (*f)(void))
{
    __atomic_store_n(&tell, f, __ATOMIC_SEQ_CST);
}

void sp_idle_start(void)
{
    for (int w = 0; w < STARPU_NMAXWORKERS; w++) {
        workers[w].waits = false;
        sem_init(&workers[w].work, 0, 0);
    }
    waiting = 0;
}

static double clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* The longer the wait, the longer the rest: if workers share cores, frequent looks take time from
 * the others. */
static void rest(struct worker *w)
{
    double waited = clock_ns(CLOCK_MONOTONIC) - w->since_ns, ns = waited / 4;
    double least = (double)(rest_ns ? rest_ns : ASIDE_REST_NS);
    struct timespec until;

    ns = ns < least ? least : ns > MOST_REST_NS ? MOST_REST_NS : ns;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    starpu_worker_relax_on();
    sem_timedwait(&w->work, &until);
    starpu_worker_relax_off();
}

void sp_idle_note(unsigned worker, bool found)
{
    struct worker *w = &workers[worker];
    void (*f)(void);

    if (w->waits != found) { /* the state has not changed */
        if (!found && (rest_ns > 0 || (int)worker == aside))
            rest(w);
        return;
    }
    /* It does not rest yet: a task filed between the look and this would not wake it. */
    w->since_ns = found ? 0 : clock_ns(CLOCK_MONOTONIC);
    __atomic_store_n(&w->waits, !found, __ATOMIC_SEQ_CST);
    if ((int)worker == aside)
        return;
    __atomic_add_fetch(&waiting, found ? -1 : 1, __ATOMIC_SEQ_CST);
    f = __atomic_load_n(&tell, __ATOMIC_SEQ_CST);
    if (!found && f)
        f();
}

void sp_idle_aside(int worker)
{
    aside = worker;
}

void sp_idle_count(int more)
{
    void (*f)(void) = __atomic_load_n(&tell, __ATOMIC_SEQ_CST);

    __atomic_add_fetch(&waiting, more, __ATOMIC_SEQ_CST);
    if (more > 0 && f)
        f();
}

void sp_idle_wake(unsigned worker)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&workers[worker].waits, __ATOMIC_SEQ_CST))
        sem_post(&workers[worker].work);
}
