/*
 * Flows that share ports, against the same worked out in small steps of time: every flow that is under way moves by
 * what its two ports give it, and of those from one port into another only the one that was ready first is.
 */
#include "policies/common.h"
#include "plan/simulation/flows.h"
#include <math.h>
#include <stdlib.h>

enum { FLOWS = 24, PORTS = 6 };

struct letter {
    int out, in;
    double ready, busy, left, end;
};

static bool flows(const struct letter *l, int i, double now)
{
    if (l[i].ready > now || l[i].left <= 0)
        return false;
    for (int k = 0; k < i; k++) /* in the order in which they are ready */
        if (l[k].out == l[i].out && l[k].in == l[i].in && l[k].left > 0)
            return false;
    return true;
}

static void step_by_step(struct letter *l, int n)
{
    const double step = 1.0 / 512;
    double moved[FLOWS];
    int left = n;

    for (int i = 0; i < n; i++)
        l[i].left = l[i].busy;
    for (double now = 0; left > 0; now += step) {
        int count[PORTS] = {0};

        for (int i = 0; i < n; i++)
            if (flows(l, i, now)) {
                count[l[i].out]++;
                count[l[i].in] += l[i].in != l[i].out;
            }
        for (int i = 0; i < n; i++) {
            int most = count[l[i].out] > count[l[i].in] ? count[l[i].out] : count[l[i].in];

            moved[i] = flows(l, i, now) ? step / most : 0;
        }
        for (int i = 0; i < n; i++) {
            if (moved[i] > 0 && l[i].left <= moved[i] + 1e-9) {
                l[i].end = now + step * l[i].left / moved[i];
                left--;
            }
            l[i].left -= moved[i];
            l[i].left = l[i].left < 1e-9 ? 0 : l[i].left;
        }
    }
}

static void play(const struct letter *l, int n, double *end)
{
    struct sp_flows f;
    int next = 0, first;

    assert_int_equal(sp_flows_create(&f, PORTS, n), 0);
    while ((first = sp_flows_first(&f)) >= 0 || next < n) {
        if (first < 0 || (next < n && l[next].ready <= f.flow[first].ends)) {
            sp_flows_begin(&f, next, l[next].out, l[next].in, l[next].busy, l[next].ready);
            next++;
            continue;
        }
        end[first] = f.flow[first].ends;
        sp_flows_end(&f, first);
    }
    sp_flows_destroy(&f);
}

static void check(struct letter *l, int n, double tolerance)
{
    double end[FLOWS];

    step_by_step(l, n);
    play(l, n, end);
    for (int i = 0; i < n; i++)
        if (fabs(end[i] - l[i].end) > tolerance)
            fail_msg("flow %d, %d to %d, ready %g, busy %g, ends at %g, not %g", i, l[i].out,
                     l[i].in, l[i].ready, l[i].busy, end[i], l[i].end);
}

TEST(by_hand)
{
    struct letter alone[] = {{0, 1, 1, 4, 0, 0}};
    struct letter pair[] = {{0, 1, 0, 4, 0, 0}, {0, 1, 1, 2, 0, 0}};
    struct letter fan[] = {{0, 1, 0, 4, 0, 0}, {0, 2, 1, 2, 0, 0}};
    struct letter half[] = {{0, 1, 0, 4, 0, 0}, {1, 0, 0, 4, 0, 0}}; /* one port for both ways */
    double end[2];

    play(alone, 1, end);
    assert_true(end[0] == 5);
    play(pair, 2, end);
    assert_true(end[0] == 4 && end[1] == 6);
    /* From 1 on half the rate for each; of the first 1 is left when the second ends. */
    play(fan, 2, end);
    assert_true(end[1] == 5 && end[0] == 6);
    play(half, 2, end);
    assert_true(end[0] == 8 && end[1] == 8);
}

static int draw(unsigned *seed, int below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int)(*seed >> 8) % below;
}

static int by_ready(const void *a, const void *b)
{
    const struct letter *x = a, *y = b;

    return (x->ready > y->ready) - (x->ready < y->ready);
}

TEST(at_random)
{
    unsigned seed = 5;

    for (int round = 0; round < 200; round++) {
        struct letter l[FLOWS];
        int n = 1 + draw(&seed, FLOWS);

        for (int i = 0; i < n; i++) {
            l[i] = (struct letter){.out = draw(&seed, PORTS),
                                   .ready = draw(&seed, 32) / 4.0,
                                   .busy = 0.25 * (1 + draw(&seed, 16))};
            l[i].in = (l[i].out + 1 + draw(&seed, PORTS - 1)) % PORTS;
        }
        qsort(l, (size_t)n, sizeof *l, by_ready);
        /* Ends are some tens away: a rate that changes within a step of time puts it off a little. */
        check(l, n, 0.1);
    }
}
