/* The StarPU policies of starpipe/order.h: the order kept, the bound held, misuse caught. */
#include "engine/support.h"

enum { MAX_TASKS = 2400, WORKERS = 2 };

/* ---- programs of tasks ------------------------------------------------------------------ */

struct item {
    int worker;     /* -1: no position */
    unsigned order; /* on its worker */
    int64_t acquire, release;
    int ran; /* when: 1, 2, ... over all workers; 0: never */
};

static struct item items[MAX_TASKS];
static int n_items, clock_now;
static int64_t live[WORKERS], peak[WORKERS];

static void run_item(void *buffers[], void *arg)
{
    struct item *it = arg;
    int worker = starpu_worker_get_id_check();

    (void)buffers;
    it->ran = __atomic_add_fetch(&clock_now, 1, __ATOMIC_SEQ_CST);
    if (it->worker < 0)
        return;
    if (worker != it->worker) /* no assertion of cmocka outside the main thread */
        it->ran = -1;
    live[worker] += it->acquire;
    peak[worker] = live[worker] > peak[worker] ? live[worker] : peak[worker];
    live[worker] -= it->release;
}

static struct starpu_codelet item_cl = {.cpu_funcs = {run_item}, .name = "item"};

static uint32_t masks[WORKERS][1] = {{1}, {2}};

static struct starpu_task *new_task(struct item *it)
{
    struct starpu_task *t = starpu_task_create();

    t->cl = &item_cl;
    t->cl_arg = it;
    if (it->worker >= 0) {
        t->workerids = masks[it->worker];
        t->workerids_len = 1;
        t->workerorder = it->order;
        if (it->acquire || it->release)
            sp_order_memory(it->worker, it->order, it->acquire, it->release);
    }
    return t;
}

/* Tasks with positions dealt out in their order, every `gap`-th without (0: none). */
static void deal(uint64_t *seed, int n, int workers, int gap, unsigned first)
{
    unsigned next[WORKERS] = {first, first};

    n_items = n;
    clock_now = 0;
    memset(live, 0, sizeof live);
    memset(peak, 0, sizeof peak);
    for (int i = 0; i < n; i++) {
        items[i] = (struct item){.worker = -1};
        if (gap && i % gap == gap - 1)
            continue;
        items[i].worker = draw_below(seed, workers);
        items[i].order = next[items[i].worker]++;
    }
}

static void shuffle(uint64_t *seed, int *perm, int n)
{
    for (int i = 0; i < n; i++)
        perm[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = draw_below(seed, i + 1), t = perm[i];

        perm[i] = perm[j];
        perm[j] = t;
    }
}

/*
 * Submits in a random order, with random dependencies from earlier items to later ones, while a
 * first task holds every root back: readiness and submission are both out of order.
 */
static void submit_shuffled(uint64_t *seed, int max_deps)
{
    static struct starpu_task *tasks[MAX_TASKS];
    static int perm[MAX_TASKS];

    for (int i = 0; i < n_items; i++)
        tasks[i] = new_task(&items[i]);
    for (int i = 1; i < n_items; i++) {
        struct starpu_task *deps[4];
        int n = draw_below(seed, max_deps + 1);

        for (int d = 0; d < n; d++)
            deps[d] = tasks[draw_below(seed, i)];
        if (n)
            starpu_task_declare_deps_array(tasks[i], (unsigned)n, deps);
    }
    shuffle(seed, perm, n_items);
    for (int i = 0; i < n_items; i++)
        assert_int_equal(starpu_task_submit(tasks[perm[i]]), 0);
    assert_int_equal(starpu_task_wait_for_all(), 0);
}

static void check_all_ran(void)
{
    for (int i = 0; i < n_items; i++)
        if (items[i].ran <= 0)
            fail_msg("task %d (worker %d, position %u): ran %d", i, items[i].worker, items[i].order,
                     items[i].ran);
}

/* Pairs of neighbours in a program that ran in the wrong order. */
static int out_of_order(void)
{
    int last[WORKERS] = {0}, n = 0;

    for (int i = 0; i < n_items; i++) {
        if (items[i].worker < 0)
            continue;
        n += items[i].ran < last[items[i].worker];
        last[items[i].worker] = items[i].ran;
    }
    return n;
}

/* ---- misuse, first: its children must not inherit threads ------------------------------- */

struct misuse {
    const char *name, *message;
    uint32_t mask;
    unsigned orders[2];
};

static void commit_misuse(void *arg)
{
    const struct misuse *m = arg;
    uint32_t mask[1] = {m->mask};

    start_starpu(2, &sp_order_strict);
    for (int i = 0; i < 2; i++) {
        struct starpu_task *t = starpu_task_create();

        items[i] = (struct item){.worker = -1};
        t->cl = &item_cl;
        t->cl_arg = &items[i];
        if (m->mask) {
            t->workerids = mask;
            t->workerids_len = 1;
        }
        t->workerorder = m->orders[i];
        if (starpu_task_submit(t))
            _exit(3);
    }
    if (m->orders[1] != 2) /* position 1 never comes: what is there must abort by itself */
        starpu_task_wait_for_all();
    _exit(4);
}

TEST(misuse)
{
    static struct misuse table[] = {
        {"two at one position", "two tasks at position 2 of worker 0", 1, {2, 2}},
        {"a position taken", "position 1 was taken already", 1, {1, 1}},
        {"two workers", "has a position but more than one worker", 3, {1, 2}},
        {"no worker", "has a position but no worker", 0, {1, 2}},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct capture said;
        int status = in_child(commit_misuse, &table[i], &said);
        bool either = i == 1 && strstr(said.text, "two tasks at position 1");

        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT ||
            (!strstr(said.text, table[i].message) && !either))
            fail_msg("%s: status %x, said: %s", table[i].name, (unsigned)status, said.text);
    }
}

/* ---- strict ----------------------------------------------------------------------------- */

TEST(strict_order)
{
    int total = 0;

    for (int workers = 1; workers <= WORKERS; workers++) {
        unsigned first = 1;

        start_starpu(workers, &sp_order_strict);
        for (uint64_t round = 0; round < 30; round++) {
            uint64_t seed = 100 * round + (uint64_t)workers;

            deal(&seed, 7 + 11 * (int)round, workers, round % 3 ? 0 : 4, first);
            submit_shuffled(&seed, 3);
            check_all_ran();
            assert_int_equal(out_of_order(), 0);
            total += n_items;
            sp_order_reset();
            first = 1;
        }
        starpu_shutdown();
    }
    printf("[          ] %d tasks in 60 random graphs, all in program order\n", total);
}

/* Positions go on over several waits, without a reset. */
TEST(positions_go_on)
{
    unsigned next = 1;

    start_starpu(1, &sp_order_strict);
    for (int round = 0; round < 40; round++) {
        uint64_t seed = 77 + (uint64_t)round;

        deal(&seed, 37, 1, 0, next);
        submit_shuffled(&seed, 2);
        check_all_ran();
        assert_int_equal(out_of_order(), 0);
        next += 37;
    }
    starpu_shutdown();
    /* A new start counts from 1 again. */
    start_starpu(1, &sp_order_strict);
    deal(&(uint64_t){5}, 5, 1, 0, 1);
    submit_shuffled(&(uint64_t){6}, 1);
    check_all_ran();
    starpu_shutdown();
}

/* The last position becomes ready first: the ring must hold everything before it. */
TEST(ring_growth)
{
    static const int sizes[] = {255, 256, 257, 511, 513, 1025, 2400};

    start_starpu(1, &sp_order_strict);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint64_t seed = 9 + k;

        deal(&seed, sizes[k], 1, 0, 1);
        for (int i = sizes[k] - 1; i >= 0; i--)
            assert_int_equal(starpu_task_submit(new_task(&items[i])), 0);
        assert_int_equal(starpu_task_wait_for_all(), 0);
        check_all_ran();
        assert_int_equal(out_of_order(), 0);
        sp_order_reset();
    }
    starpu_shutdown();
    printf("[          ] up to %d positions pending at once\n", sizes[6]);
}

/* ---- ready ------------------------------------------------------------------------------ */

/* A program that acquires and releases as a pipeline does; returns the peak of its strict order. */
static int64_t give_memory(uint64_t *seed, int worker)
{
    int64_t open[MAX_TASKS], held = 0, highest = 0;
    int n = 0;

    for (int i = 0; i < n_items; i++) {
        struct item *it = &items[i];

        if (it->worker != worker)
            continue;
        if (n && draw_below(seed, 2)) {
            it->release = open[--n];
        } else if (draw_below(seed, 4)) { /* some neither acquire nor release */
            it->acquire = 1 + draw_below(seed, 9);
            open[n++] = it->acquire;
        }
        held += it->acquire;
        highest = held > highest ? held : highest;
        held -= it->release;
    }
    return highest;
}

TEST(ready_keeps_bound)
{
    int overtakings = 0, total = 0, tight = 0;

    for (int workers = 1; workers <= WORKERS; workers++) {
        start_starpu(workers, &sp_order_ready);
        for (uint64_t round = 0; round < 60; round++) {
            uint64_t seed = 1000 * round + (uint64_t)workers;
            int64_t bound[WORKERS] = {0};

            deal(&seed, 5 + 5 * (int)round, workers, round % 4 ? 0 : 6, 1);
            for (int w = 0; w < workers; w++) {
                bound[w] = give_memory(&seed, w);
                sp_order_bound(w, bound[w]);
            }
            submit_shuffled(&seed, 3);
            check_all_ran();
            for (int w = 0; w < workers; w++) {
                if (peak[w] > bound[w])
                    fail_msg("round %d: worker %d held %lld, bound %lld", (int)round, w,
                             (long long)peak[w], (long long)bound[w]);
                tight += peak[w] == bound[w];
            }
            overtakings += out_of_order();
            total += n_items;
            sp_order_reset();
        }
        starpu_shutdown();
    }
    printf("[          ] %d tasks, %d overtakings, no bound exceeded (reached %d times of 180)\n",
           total, overtakings, tight);
    assert_true(overtakings > total / 100);
    assert_true(tight > 0);
}

static int gate_open;

static void wait_for_gate(void *buffers[], void *arg)
{
    (void)buffers, (void)arg;
    while (!__atomic_load_n(&gate_open, __ATOMIC_ACQUIRE))
        usleep(200);
}

static struct starpu_codelet gate_cl = {.cpu_funcs = {wait_for_gate}, .name = "gate"};

/* Position 1 waits for a gate on the other worker; says which of 2, 3, ... ran before it. */
static unsigned overtakers(const int64_t *acquire, int n, int64_t bound)
{
    struct starpu_task *gate = starpu_task_create(), *first;
    unsigned before = 0;

    deal(&(uint64_t){1}, n, 1, 0, 1);
    gate_open = 0;
    gate->cl = &gate_cl;
    gate->workerids = masks[1];
    gate->workerids_len = 1;
    gate->workerorder = 1;
    for (int i = 0; i < n; i++) {
        items[i].acquire = acquire[i];
        items[i].release = acquire[i] < 0 ? -acquire[i] : 0;
        items[i].acquire = acquire[i] > 0 ? acquire[i] : 0;
    }
    sp_order_bound(0, bound);
    first = new_task(&items[0]);
    starpu_task_declare_deps_array(first, 1, &gate);
    assert_int_equal(starpu_task_submit(first), 0);
    for (int i = 1; i < n; i++)
        assert_int_equal(starpu_task_submit(new_task(&items[i])), 0);
    assert_int_equal(starpu_task_submit(gate), 0);
    for (int wait = 0; wait < 100; wait++)
        usleep(500);
    for (int i = 1; i < n; i++)
        before |= (__atomic_load_n(&items[i].ran, __ATOMIC_ACQUIRE) > 0) << (i + 1);
    __atomic_store_n(&gate_open, 1, __ATOMIC_RELEASE);
    assert_int_equal(starpu_task_wait_for_all(), 0);
    check_all_ran();
    sp_order_reset();
    return before;
}

/* Room for position 1 is kept; what acquires nothing passes; nothing starves. */
TEST(ready_what_passes)
{
    start_starpu(2, &sp_order_ready);
    /* 1 wants 5 of 8: 2 (3) fits beside it, 3 (1) no more, 4 (0) always does. */
    assert_int_equal(overtakers((const int64_t[]){5, 3, 1, 0}, 4, 8), 1 << 2 | 1 << 4);
    /* 3 (3) fits once 4 gave back what 2 (4) took. */
    assert_int_equal(overtakers((const int64_t[]){5, 4, 3, -4}, 4, 9), 1 << 2 | 1 << 3 | 1 << 4);
    /* 2 (4) does not fit; 3 (3) would, but then 2 would run into the bound after 1. */
    assert_int_equal(overtakers((const int64_t[]){5, 4, 3, 0}, 4, 8), 1 << 4);
    /* No bound: all pass. */
    assert_int_equal(overtakers((const int64_t[]){5, 4, 3, 2}, 4, INT64_MAX),
                     1 << 2 | 1 << 3 | 1 << 4);
    starpu_shutdown();
    start_starpu(2, &sp_order_strict);
    assert_int_equal(overtakers((const int64_t[]){5, 4, 3, 0}, 4, INT64_MAX), 0);
    starpu_shutdown();
}

/* ---- positions that are held ------------------------------------------------------------ */

/* Positions 3 and 5 of 6 are held, 3 twice. Which ran, as bits. */
static unsigned ran_so_far(void)
{
    unsigned ran = 0;

    for (int i = 0; i < 6; i++)
        ran |= (__atomic_load_n(&items[i].ran, __ATOMIC_ACQUIRE) > 0) << (i + 1);
    return ran;
}

/* These run, however slow the machine is, and no others after them. */
static void assert_ran(unsigned these)
{
    for (int i = 0; i < 10000 && ran_so_far() != these; i++)
        usleep(1000);
    usleep(20000);
    assert_int_equal(ran_so_far(), these);
}

static void hold_and_release(unsigned first, unsigned second, unsigned third)
{
    deal(&(uint64_t){1}, 6, 1, 0, 1);
    sp_order_hold(0, 3);
    sp_order_hold(0, 5);
    sp_order_hold(0, 3);
    for (int i = 5; i >= 0; i--)
        assert_int_equal(starpu_task_submit(new_task(&items[i])), 0);
    assert_ran(first);
    sp_order_release(0, 3);
    assert_ran(first);
    sp_order_release(0, 3);
    assert_ran(second);
    /* two pauses of 20 ms; the worker may have noticed the position late */
    assert_true(sp_order_held_us(0) > 10000);
    sp_order_release(0, 5);
    assert_int_equal(starpu_task_wait_for_all(), 0);
    assert_int_equal(ran_so_far(), third);
    sp_order_reset();
}

TEST(held_positions)
{
    const unsigned all = 0x7e;

    start_starpu(1, &sp_order_strict);
    hold_and_release(1 << 1 | 1 << 2, all & ~(1u << 5 | 1u << 6), all);
    starpu_shutdown();
    start_starpu(1, &sp_order_ready); /* others pass */
    hold_and_release(all & ~(1u << 3 | 1u << 5), all & ~(1u << 5), all);
    starpu_shutdown();
}
