/* Messages between processes: their latency, and the bandwidth of long ones. */
#include "plan/profile.h"
#include "sp_error.h"
#include "train/calibrate/rates.h"
#include "transport/transport.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sp_peers sp_find_peers(const struct sp_world *world)
{
    char here[256] = "";
    struct sp_peers peers = {-1, -1};
    char *root;
    bool same;
    int rank;

    gethostname(here, sizeof here - 1);
    root = sp_transport_root_text(here);
    same = root && !strcmp(root, here);
    free(root);
    if (sp_transport_agree(same && world->rank > 0, &rank))
        peers.node = rank;
    if (sp_transport_agree(!same, &rank))
        peers.network = rank;
    return peers;
}

enum { SHORT_BYTES = 64, LONG_BYTES = 8 << 20, TIMES = 5 };

/* Takes a fixed number of samples whatever they take, because the two ranks must agree on it. */
static double message_s(struct sp_bench *b, int peer, size_t bytes)
{
    struct sp_steady s = {0};
    char what[SP_QUALITY_TEXT];

    for (int i = 0; i < TIMES; i++)
        sp_steady_add(&s, 1e-6 * sp_profile_comm_us(&b->place.world, peer, bytes));
    snprintf(what, sizeof what, "messages of %zu bytes", bytes);
    sp_quality_add_shared(b->quality, what, &s);
    return sp_steady_value(&s);
}

void sp_measure_link(struct sp_bench *b, int peer, struct sp_link *link)
{
    double latency = message_s(b, peer, SHORT_BYTES), more = message_s(b, peer, LONG_BYTES);

    if (b->place.world.rank > 0)
        return;
    if (more <= latency) /* a clock that saw nothing of it */
        more = 2 * latency;
    *link =
        (struct sp_link){.latency_s = sp_measured(latency),
                         .bandwidth = sp_measured((LONG_BYTES - SHORT_BYTES) / (more - latency)),
                         .shared_by = 1};
}

void sp_measure_memory_link(struct sp_bench *b, struct sp_link *link)
{
    char *from = malloc(LONG_BYTES), *to = malloc(LONG_BYTES);
    const double start = sp_bench_now_s();
    struct sp_steady s = {0};

    SP_NEED(from && to, "out of memory for a copy of %d bytes", LONG_BYTES);
    memset(from, 1, LONG_BYTES);
    memset(to, 2, LONG_BYTES);
    do {
        double waited = sp_bench_waited_s(), begin = sp_bench_now_s(), took;

        memcpy(s.n % 2 ? from : to, s.n % 2 ? to : from, LONG_BYTES);
        took = sp_bench_now_s() - begin;
        if (sp_bench_waited_s() - waited <= 0.05 * took)
            sp_steady_add(&s, took);
        else
            sp_steady_disturbed(&s, took);
    } while (s.n < SP_STEADY_MOST && !sp_steady_reached(&s) &&
             sp_bench_now_s() - start < 40 * b->turn_s);
    sp_quality_add_shared(b->quality, "copy through memory", &s);
    *link = (struct sp_link){.bandwidth = sp_measured(LONG_BYTES / s.fastest), .shared_by = 1};
    free(from);
    free(to);
}
