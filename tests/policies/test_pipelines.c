/* Data parallelism: with any number of pipelines, all compute the same bits of the sum over all. */
#include "policies/common.h"
#include "policies/lowering/pipelines.h"

enum { MOST = 70 };

struct pipeline {
    double value; /* added in an order of its own: rounding tells orders apart */
    double exact; /* of whole numbers */
    double posted, posted_exact;
    int at, n, sent;
    bool has_posted;
    struct sp_exchange e[SP_MAX_EXCHANGES];
};

/* Makes the next exchange of pipeline q and its peer; false if the peer has another one to make
 * first. */
static bool advance(struct pipeline *p, int q)
{
    struct pipeline *me = &p[q];
    const struct sp_exchange *e = &me->e[me->at];
    struct pipeline *peer = &p[e->peer];
    const struct sp_exchange *theirs = &peer->e[peer->at];

    if (peer->at == peer->n || theirs->peer != q)
        return false;
    assert_int_equal(e->sends, theirs->receives); /* both ends know of every message */
    assert_int_equal(e->receives, theirs->sends);
    assert_true(!e->replaces || !e->sends);
    me->posted = me->value;
    me->posted_exact = me->exact;
    peer->posted = peer->value;
    peer->posted_exact = peer->exact;
    for (int side = 0; side < 2; side++) {
        struct pipeline *to = side ? peer : me, *from = side ? me : peer;
        const struct sp_exchange *x = side ? theirs : e;

        to->sent += x->sends;
        if (x->receives) {
            to->value = x->replaces ? from->posted : to->value + from->posted;
            to->exact = x->replaces ? from->posted_exact : to->exact + from->posted_exact;
        }
        to->at++;
    }
    return true;
}

TEST(all_come_to_one_sum)
{
    for (int n = 1; n <= MOST; n++) {
        struct pipeline p[MOST] = {0};
        int sent = 0, rounds = 0;
        bool moved = true;

        for (int q = 0; q < n; q++) {
            p[q].value = 1.0 / (3 * q + 1);
            p[q].exact = q * q + 1;
            p[q].n = sp_pipelines_exchanges(q, n, p[q].e);
            assert_true(p[q].n <= SP_MAX_EXCHANGES);
        }
        while (moved) {
            moved = false;
            for (int q = 0; q < n; q++)
                if (p[q].at < p[q].n)
                    moved |= advance(p, q);
        }
        while (2 << rounds <= n)
            rounds++;
        for (int q = 0; q < n; q++) {
            if (p[q].at < p[q].n)
                fail_msg("%d pipelines: %d waits for %d for ever", n, q, p[q].e[p[q].at].peer);
            assert_true(p[q].value == p[0].value);
            assert_true(p[q].exact == (n - 1) * n * (2 * n - 1) / 6 + n);
            assert_int_equal(p[q].sent, sp_pipelines_sent(q, n));
            sent += p[q].sent;
        }
        /* log2 n messages each for a power of two; one to and one back for each other pipeline */
        assert_int_equal(sent, (1 << rounds) * rounds + 2 * (n - (1 << rounds)));
    }
    assert_int_equal(sp_pipelines_sent(0, 1), 0);
    assert_int_equal(sp_pipelines_sent(0, SP_MAX_PIPELINES), 12);
}

/* Parts follow each other without a gap, and differ by one element at most. */
TEST(parts_are_all)
{
    const uint64_t sizes[] = {1, 7, 64, 1000003, UINT32_MAX};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int n = 1; n <= 9; n++) {
            uint64_t at = 0, first, count, largest;

            sp_pipelines_part(sizes[i], 0, n, &first, &largest);
            for (int q = 0; q < n; q++) {
                sp_pipelines_part(sizes[i], q, n, &first, &count);
                assert_int_equal(first, at);
                assert_in_range(count + 1, largest, largest + 1);
                at += count;
            }
            assert_int_equal(at, sizes[i]);
        }
}
