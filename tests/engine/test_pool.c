/* The pool of handles: reuse, the order of slack, no growth once steady, bytes. */
#include "engine/numbered.h"
#include "sinks/pool.h"
#include "sinks/starpu/sink.h"
#include "sinks/starpu/tensor.h"

static int start(void **state)
{
    (void)state;
    start_starpu(2, &sp_order_strict);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    starpu_shutdown();
    return 0;
}

/* No slack: the handle given back last, of the size asked for. */
TEST(takes_the_latest)
{
    struct sp_pool *p = sp_pool_create(sp_starpu_sink(), 0, SP_POOL_FORGETS);
    struct sp_tensor *a = sp_pool_get(p, 33, 4, "a"), *b = sp_pool_get(p, 33, 4, "b");
    struct sp_tensor *other = sp_pool_get(p, 34, 4, "c"), *wide = sp_pool_get(p, 17, 8, "d");

    assert_ptr_not_equal(a, b);
    assert_int_equal(sp_pool_bytes(p), 4 * (33 + 33 + 34 + 2 * 17));
    assert_int_equal(sp_tensor_size(other), 4 * 34);
    assert_int_equal(wide->elem, 8);
    sp_pool_put(a);
    sp_pool_put(b);
    sp_pool_put(other);
    sp_pool_put(wide);
    assert_ptr_equal(sp_pool_get(p, 33, 4, "x"), b);
    assert_ptr_equal(sp_pool_get(p, 33, 4, "x"), a);
    /* 34 floats and 17 doubles have the same size but are different handles. */
    assert_ptr_equal(sp_pool_get(p, 17, 8, "x"), wide);
    assert_ptr_equal(sp_pool_get(p, 34, 4, "x"), other);
    assert_int_equal(sp_pool_bytes(p), 4 * (33 + 33 + 34 + 2 * 17));
    sp_pool_put(a);
    sp_pool_put(b);
    sp_pool_put(other);
    sp_pool_put(wide);
    sp_pool_destroy(p);
    sp_pool_destroy(NULL);
}

/* A handle returns to the pool only when all its users have given it back. */
TEST(owners)
{
    struct sp_pool *p = sp_pool_create(sp_starpu_sink(), 0, SP_POOL_FORGETS);
    struct sp_tensor *a = sp_pool_get(p, 5, 4, "a"), *b;

    sp_pool_hold(a);
    sp_pool_put(a);
    b = sp_pool_get(p, 5, 4, "b");
    assert_ptr_not_equal(b, a);
    sp_pool_put(b);
    sp_pool_put(a);
    assert_ptr_equal(sp_pool_get(p, 5, 4, "x"), a);
    assert_ptr_equal(sp_pool_get(p, 5, 4, "x"), b);
    sp_pool_put(a);
    sp_pool_put(b);
    sp_pool_destroy(p);
}

/* With slack s the pool gives the oldest handle, and only if more than s are idle; where the oldest
 * are asked for, without slack. Compared with a plain list, at random. */
TEST(slack)
{
    enum { MOST = 64 };
    uint64_t seed = 11;

    for (int slack = 0; slack <= 3; slack++) {
        struct sp_pool *p = sp_pool_create(sp_starpu_sink(), slack, SP_POOL_FORGETS);
        struct sp_tensor *idle[MOST], *flying[MOST];
        int n_idle = 0, n_flying = 0, made = 0, reused = 0;

        sp_pool_take_oldest(p, slack == 0);
        for (int i = 0; i < 500; i++) {
            if (n_flying < 20 && draw_below(&seed, 2)) {
                struct sp_tensor *h = sp_pool_get(p, 5, 4, "h");

                if (n_idle > slack) {
                    assert_ptr_equal(h, idle[0]);
                    memmove(idle, idle + 1, sizeof *idle * (size_t)--n_idle);
                    reused++;
                } else {
                    for (int k = 0; k < n_idle; k++)
                        assert_ptr_not_equal(h, idle[k]);
                    made++;
                }
                flying[n_flying++] = h;
            } else if (n_flying) {
                int k = draw_below(&seed, n_flying);

                sp_pool_put(flying[k]);
                idle[n_idle++] = flying[k];
                flying[k] = flying[--n_flying];
            }
            assert_int_equal(sp_pool_bytes(p), made * 20);
        }
        assert_true(reused > 150 && made >= slack + 1);
        while (n_flying)
            sp_pool_put(idle[n_idle++] = flying[--n_flying]);
        sp_pool_take_oldest(p, false);
        flying[0] = sp_pool_get(p, 5, 4, "h");
        assert_ptr_equal(flying[0], slack ? idle[0] : idle[n_idle - 1]);
        sp_pool_put(flying[0]);
        sp_pool_destroy(p);
    }
}

/* Many rounds of tensors of several sizes in flight: made in the first round, never after; and
 * every reader sees what its writer wrote, whatever was in the buffer before. */
TEST(steady)
{
    static const size_t sizes[] = {7, 33, 1025};
    size_t after_first = 0;
    uint64_t seed = 4;

    for (int way = 0; way < 4; way++) {
        int slack = way & 2;
        struct sp_pool *p =
            sp_pool_create(sp_starpu_sink(), slack, way & 1 ? SP_POOL_FORGETS : SP_POOL_KEEPS);

        wrong = 0;
        for (int round = 0; round < 50; round++) {
            struct sp_tensor *flying[12];

            for (int i = 0; i < 12; i++) {
                flying[i] = sp_pool_get(p, sizes[i % 3], 4, "t");
                submit(&write_cl, flying[i], 1000 * round + 10 * i);
            }
            for (int k = 0; k < 12; k++) {
                int i = (k * 5 + round) % 12;

                submit(&read_cl, flying[i], 1000 * round + 10 * i);
                sp_pool_put(flying[i]);
            }
            if (draw_below(&seed, 3) == 0)
                starpu_task_wait_for_all();
            if (round == 0)
                after_first = sp_pool_bytes(p);
            if (slack == 0)
                assert_int_equal(sp_pool_bytes(p), after_first);
            else if (round == 1)
                after_first = sp_pool_bytes(p);
            else if (round > 1)
                assert_int_equal(sp_pool_bytes(p), after_first);
        }
        starpu_task_wait_for_all();
        assert_int_equal(wrong, 0);
        assert_int_equal(after_first, 4 * (4 + (size_t)slack) * (7 + 33 + 1025));
        printf("[          ] slack %d: %zu bytes for 12 tensors in flight, 50 rounds\n", slack,
               after_first);
        sp_pool_destroy(p);
    }
}

/* A pool may keep a returned handle's value, forget it, or free its buffer. */
TEST(dead)
{
    static const struct {
        enum sp_pool_dead dead;
        bool allocated, valid;
    } cases[] = {
        {SP_POOL_KEEPS, true, true}, {SP_POOL_FORGETS, true, false}, {SP_POOL_FREES, false, false}};

    for (int k = 0; k < 3; k++) {
        struct sp_pool *p = sp_pool_create(sp_starpu_sink(), 0, cases[k].dead);
        struct sp_tensor *h = sp_pool_get(p, 33, 4, "h");
        int allocated, valid, loading;

        submit(&write_cl, h, 3);
        starpu_task_wait_for_all();
        starpu_data_query_status(sp_handle(h), STARPU_MAIN_RAM, &allocated, &valid, &loading);
        assert_true(allocated && valid);
        sp_pool_put(h);
        starpu_task_wait_for_all();
        starpu_data_query_status(sp_handle(h), STARPU_MAIN_RAM, &allocated, &valid, &loading);
        assert_int_equal(allocated, cases[k].allocated);
        assert_int_equal(valid, cases[k].valid);
        sp_pool_destroy(p);
    }
}

/* Beyond 2^32 elements the handle counts in larger units (no memory is touched). */
TEST(wide_vectors)
{
    static const size_t sizes[] = {1, 4294967294u, 4294967295u, 5000000001u, 34359738368u};
    struct sp_pool *p = sp_pool_create(sp_starpu_sink(), 0, SP_POOL_FORGETS);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct sp_tensor *h = sp_pool_get(p, sizes[i], 4, "wide");
        size_t bytes = sp_tensor_size(h);

        assert_true(bytes >= 4 * sizes[i] && bytes < 4 * sizes[i] + 64);
        assert_int_equal(bytes % h->elem, 0);
        sp_pool_put(h);
        assert_ptr_equal(sp_pool_get(p, sizes[i], 4, "again"), h);
        sp_pool_put(h);
    }
    sp_pool_destroy(p);
}

TEST_FIXTURE(start, stop)
