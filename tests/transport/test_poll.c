/* How long the thread for messages rests: often asked where a worker waits, seldom where all compute. */
#include "policies/common.h"
#include "transport/poll.h"
#include <stdlib.h>

/* Wakings in `us` microseconds that begin with something that moved. */
static int wakings(double us, bool awaited, bool crowded)
{
    int n = 0;

    for (double at = 0; at < us; n++) {
        long ns = sp_poll_rest_ns(at, awaited, crowded);

        at += 1e-3 * (double)ns + 1;
    }
    return n;
}

static void test_computing(void **state)
{
    int n = wakings(1e5, false, true);

    (void)state;
    print_message("wakings in 100 ms in which all compute: %d, with a core to spare %d\n", n,
                  wakings(1e5, false, false));
    assert_in_range(n, 100, 110); /* one a millisecond, a few more at the beginning */
    assert_in_range(wakings(500, false, true), 4, 6);
    assert_true(wakings(1e5, false, false) > 4000);
}

static void test_awaited(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        assert_int_equal(sp_poll_rest_ns(0, true, crowded), 0);
        assert_in_range(sp_poll_rest_ns(1e6, true, crowded), 1, 10000);
    }
}

static void test_given(void **state)
{
    (void)state;
    unsetenv("SP_POLL_US");
    assert_true(sp_poll_given_ns() < 0);
    assert_int_equal(sp_poll_pause_ns(), 20000);
    setenv("SP_POLL_US", "0", 1);
    assert_int_equal(sp_poll_given_ns(), 0);
    assert_int_equal(sp_poll_pause_ns(), 0);
    setenv("SP_POLL_US", "300", 1);
    assert_int_equal(sp_poll_given_ns(), 300000);
    setenv("SP_POLL_US", "-5", 1);
    assert_true(sp_poll_given_ns() < 0);
    unsetenv("SP_POLL_US");
}

TEST_GROUP(poll)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_computing),
        cmocka_unit_test(test_awaited),
        cmocka_unit_test(test_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
