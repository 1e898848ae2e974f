/* When a run counts as stalled, at times that the test makes up, in microseconds. */
#include "policies/common.h"
#include "train/run/watchdog.h"

enum { S = 1000000 };

static struct sp_stall stall;
static double now;
static unsigned long moves;

static void start(double timeout_us)
{
    now = 5e12 + 17;
    moves = 41;
    sp_stall_start(&stall, timeout_us, now, moves);
}

static bool tick_after(double us)
{
    now += us;
    return sp_stall_tick(&stall, now, moves, false);
}

/* Ticks as they should come until the run counts as stalled; how long that took. */
static double until_stalled(void)
{
    double from = now;

    for (int i = 0; i < 1000; i++)
        if (tick_after(stall.tick_us))
            return now - from;
    fail_msg("no stall in 1000 ticks of %.0f us", stall.tick_us);
    return 0;
}

TEST(test_ticks)
{
    static const double timeouts[] = {0.05 * S, 1 * S, 3 * S, 300 * S};
    static const double ticks[] = {0.01 * S, 0.1 * S, 0.3 * S, 1 * S};

    for (int i = 0; i < 4; i++) {
        start(timeouts[i]);
        assert_true(stall.tick_us == ticks[i]);
    }
}

/* It counts from the last movement, to a tick. */
TEST(test_movement)
{
    start(3 * S);
    for (int i = 0; i < 100; i++) {
        moves += (unsigned long)(i % 9 == 0);
        assert_false(tick_after(0.3 * S));
    }
    moves++;
    assert_false(tick_after(0.3 * S));
    assert_true(until_stalled() >= 3 * S && now - 5e12 > 33 * S);
    start(3 * S);
    assert_true(until_stalled() <= 3.3 * S);
}

/* A machine with much to do makes ticks late: they count, but none for long. */
TEST(test_late_ticks)
{
    int n = 0;

    start(1 * S);
    while (!tick_after(0.35 * S))
        n++;
    assert_int_equal(n + 1, 5); /* as 0.2 s each */
}

/* A pause starts the count anew, whenever it comes and however often. */
TEST(test_stopped)
{
    static const double pauses[] = {0.5, 1, 3, 15, 1e5};

    for (int i = 0; i < 5; i++)
        for (int before = 0; before < 9; before++) {
            start(1 * S);
            for (int k = 0; k < before; k++)
                assert_false(tick_after(0.1 * S));
            assert_false(tick_after(pauses[i] * S));
            assert_true(until_stalled() >= 0.95 * S);
        }
    start(300 * S);
    for (int i = 0; i < 250; i++)
        assert_false(tick_after(1 * S));
    assert_false(tick_after(60 * S));
    assert_true(until_stalled() >= 299 * S);
}

/* While nothing is expected to move no time counts. */
TEST(test_paused)
{
    start(1 * S);
    for (int i = 0; i < 5; i++)
        assert_false(tick_after(0.1 * S));
    for (int i = 0; i < 100; i++)
        assert_false(sp_stall_tick(&stall, now += 0.1 * S, moves, true));
    assert_true(until_stalled() >= 0.95 * S);
}
