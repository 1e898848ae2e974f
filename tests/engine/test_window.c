/* The submission window: blocks at its limit, drains, counts tasks of many threads right. */
#include "codelets/task/window.h"
#include "policies/common.h"
#include <pthread.h>

enum { LIMIT = 5, OPS = 4000, TASKS = 7, THREADS = 4 };

/* Ops that were opened and not finished, as the workers see them. */
static int open_ops, most_open;

/* ---- blocking --------------------------------------------------------------------------- */

struct opener {
    struct sp_window *w;
    struct sp_window_op *op;
    int opened;
};

static void *open_one(void *arg)
{
    struct opener *o = arg;

    o->op = sp_window_open(o->w, 0);
    __atomic_store_n(&o->opened, 1, __ATOMIC_RELEASE);
    return NULL;
}

static bool opens_within(struct opener *o, int ms)
{
    for (int i = 0; i < ms && !__atomic_load_n(&o->opened, __ATOMIC_ACQUIRE); i++)
        usleep(1000);
    return o->opened;
}

TEST(blocks_at_limit)
{
    struct sp_window *w = sp_window_create(LIMIT);
    struct sp_window_op *ops[LIMIT];
    struct opener o = {.w = w};
    pthread_t thread;

    for (int i = 0; i < LIMIT; i++)
        ops[i] = sp_window_open(w, 0);
    pthread_create(&thread, NULL, open_one, &o);
    assert_false(opens_within(&o, 50));

    /* A closed op is finished only when its tasks are, and tasks only count when it is closed. */
    sp_window_add(ops[3]);
    sp_window_add(ops[3]);
    sp_window_done(ops[3]);
    sp_window_close(ops[3]);
    assert_false(opens_within(&o, 50));
    sp_window_add(ops[1]);
    sp_window_done(ops[1]);
    assert_false(opens_within(&o, 50));
    sp_window_done(ops[3]);
    assert_true(opens_within(&o, 2000));
    pthread_join(thread, NULL);

    sp_window_close(o.op);
    for (int i = 0; i < LIMIT; i++)
        if (i != 3)
            sp_window_close(ops[i]);
    sp_window_drain(w, 0);
    sp_window_destroy(w);
}

/* ---- draining --------------------------------------------------------------------------- */

static void *drain(void *arg)
{
    struct opener *o = arg;

    sp_window_drain(o->w, 0);
    __atomic_store_n(&o->opened, 1, __ATOMIC_RELEASE);
    return NULL;
}

TEST(drains)
{
    struct sp_window *w = sp_window_create(3);
    struct sp_window_op *a = sp_window_open(w, 0), *b = sp_window_open(w, 0);
    struct opener o = {.w = w};
    pthread_t thread;

    sp_window_add(a);
    sp_window_close(a);
    sp_window_close(b);
    pthread_create(&thread, NULL, drain, &o);
    assert_false(opens_within(&o, 50));
    sp_window_done(a);
    assert_true(opens_within(&o, 2000));
    pthread_join(thread, NULL);
    sp_window_drain(w, 0); /* empty: at once */
    a = sp_window_open(w, 1);
    sp_window_drain(w, 0); /* nothing of its steps */
    sp_window_close(a);
    sp_window_drain(w, 1);
    sp_window_destroy(w);
}

/* ---- many threads ----------------------------------------------------------------------- */

static struct sp_window_op *queue[OPS * TASKS];
static int remaining[OPS], number[OPS * TASKS], queued, next;

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        int k = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);

        if (k >= OPS * TASKS)
            return NULL;
        while (__atomic_load_n(&queued, __ATOMIC_ACQUIRE) <= k)
            usleep(10);
        /* The last task of an op: it is not open any more, just before the window may know. */
        if (!__atomic_sub_fetch(&remaining[number[k]], 1, __ATOMIC_ACQ_REL))
            __atomic_sub_fetch(&open_ops, 1, __ATOMIC_ACQ_REL);
        sp_window_done(queue[k]);
    }
}

TEST(many_threads)
{
    struct sp_window *w = sp_window_create(LIMIT);
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, w);
    for (int i = 0; i < OPS; i++) {
        struct sp_window_op *op = sp_window_open(w, 0);
        int now;

        remaining[i] = TASKS;
        now = __atomic_add_fetch(&open_ops, 1, __ATOMIC_ACQ_REL);
        most_open = now > most_open ? now : most_open;
        for (int t = 0; t < TASKS; t++) {
            sp_window_add(op);
            queue[i * TASKS + t] = op;
            number[i * TASKS + t] = i;
            __atomic_store_n(&queued, i * TASKS + t + 1, __ATOMIC_RELEASE);
        }
        sp_window_close(op);
    }
    sp_window_drain(w, 0);
    assert_int_equal(open_ops, 0);
    assert_true(most_open <= LIMIT);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    sp_window_destroy(w);
    printf("[          ] %d ops of %d tasks by %d threads, %d open at once of %d\n", OPS, TASKS,
           THREADS, most_open, LIMIT);
}
