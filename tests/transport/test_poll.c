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

TEST(test_computing)
{
    int n = wakings(1e5, false, true);

    print_message("wakings in 100 ms in which all compute: %d, with a core to spare %d\n", n,
                  wakings(1e5, false, false));
    assert_in_range(n, 100, 110); /* one a millisecond, a few more at the beginning */
    assert_in_range(wakings(500, false, true), 4, 6);
    assert_true(wakings(1e5, false, false) > 4000);
}

TEST(test_awaited)
{
    for (int crowded = 0; crowded < 2; crowded++) {
        assert_int_equal(sp_poll_rest_ns(0, true, crowded), 0);
        assert_in_range(sp_poll_rest_ns(1e6, true, crowded), 1, 10000);
    }
}

TEST(test_given)
{
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

/* Polls after long rests of a machine: most find nothing and take 1 to 1.4 times `idle_us`, every tenth moves a piece.
 * How many of each kind are told wrong, once the quick ones are known. */
static void count_wrong(double idle_us, double piece_us, int *missed, int *dreamt)
{
    double quiet = 0;

    *missed = *dreamt = 0;
    for (int i = 0; i < 1000; i++) {
        bool piece = i % 10 == 9;
        double took = idle_us * (1 + 0.1 * (i * 7 % 5)) + (piece ? piece_us : 0);
        bool moved = sp_poll_moved(took, 1000, &quiet);

        if (i >= 10) {
            *missed += piece && !moved;
            *dreamt += !piece && moved;
        }
    }
}

TEST(pieces_are_seen)
{
    const struct {
        double idle_us, piece_us;
    } machines[] = {{0.3, 3}, {1, 3.5}, {2, 6}, {4, 12}, {6, 20}};
    double quiet = 0;

    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        int missed, dreamt;

        count_wrong(machines[i].idle_us, machines[i].piece_us, &missed, &dreamt);
        printf("    nothing %.1f us, a piece %.1f: of 1000 polls %d missed, %d dreamt of\n",
               machines[i].idle_us, machines[i].piece_us, missed, dreamt);
        assert_int_equal(missed, 0);
        assert_int_equal(dreamt, 0);
    }
    assert_true(sp_poll_moved(3, 50, &quiet)); /* what is in the caches takes less */
    assert_false(sp_poll_moved(1, 50, &quiet));
}
