/* Transfers: messages between processes, copies in memory and to GPUs, and disks, in the way that a run uses them. */
#include "kernels/cpu/team.h"
#include "kernels/kernels.h"
#include "offload/disk.h"
#include "plan/profile.h"
#include "sinks/starpu/cuda_memory.h"
#include "sp_error.h"
#include "train/calibrate/rates.h"
#include "transport/transport.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* True while n figures that are measured together want more samples: until all are steady, for at most `turns` turns. */
static bool want_more(const struct sp_bench *b, const struct sp_steady *s, int n, double start,
                      double turns)
{
    bool steady = true;

    for (int i = 0; i < n; i++)
        steady = steady && sp_steady_reached(&s[i]);
    return s->n + s->disturbed < SP_STEADY_LEAST ||
           (s->n < SP_STEADY_MOST && !steady && sp_bench_now_s() - start < turns * b->turn_s);
}

/* ---- links --------------------------------------------------------------------------------- */

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
        sp_steady_take(&s, took, sp_bench_waited_s() - waited, 1);
    } while (want_more(b, &s, 1, start, 40));
    sp_quality_add_shared(b->quality, "copy through memory", &s);
    *link = (struct sp_link){.bandwidth = sp_measured(LONG_BYTES / s.fastest), .shared_by = 1};
    free(from);
    free(to);
}

/* ---- tiers: where offloaded activations go --------------------------------------------------- */

/* To the tier, from it, and with both ways busy: bytes a second, or seconds a byte of samples. */
enum { WRITE, READ, BOTH, WAYS };

/* Measures a tier as often as it takes, with a function that sets bytes a second. */
static int measure_tier(struct sp_bench *b, const char *tier,
                        int (*measure)(void *arg, double rate[WAYS]), void *arg, double rate[WAYS])
{
    static const char *const ways[] = {"to", "from", "both to and from"};
    const double start = sp_bench_now_s();
    struct sp_steady s[WAYS] = {0};

    do {
        int err = measure(arg, rate);

        if (err)
            return err;
        for (int i = 0; i < WAYS; i++)
            sp_steady_add(&s[i], 1 / rate[i]);
    } while (want_more(b, s, WAYS, start, 100));
    for (int i = 0; i < WAYS; i++) {
        char what[SP_QUALITY_TEXT];

        snprintf(what, sizeof what, "copies %s %s", ways[i], tier);
        sp_quality_add_shared(b->quality, what, &s[i]);
        rate[i] = sp_measured(1 / sp_steady_value(&s[i]));
    }
    /* neither way is faster with both busy than alone */
    rate[BOTH] = fmin(fmin(rate[WRITE], rate[READ]), rate[BOTH]);
    return 0;
}

static int measure_gpu(void *gpu, double rate[WAYS])
{
    return sp_cuda_measure_copies(*(int *)gpu, &rate[WRITE], &rate[READ], &rate[BOTH]);
}

int sp_measure_copies(struct sp_bench *b, struct sp_copy_rates *copy)
{
    double rate[WAYS];
    int err;

    *copy = (struct sp_copy_rates){.to_host = 0};
    if (!b->place.gpus)
        return 0;
    sp_bench_show(b, "copies between GPU and host");
    err = measure_tier(b, "the host", measure_gpu, &b->place.gpu[0], rate);
    if (!err)
        *copy = (struct sp_copy_rates){
            .to_host = rate[WRITE], .from_host = rate[READ], .both = rate[BOTH], .shared_by = 1};
    return err;
}

void sp_measure_host(struct sp_bench *b, double *rate)
{
    enum { ELEMENTS = 16 << 20, ARRAYS = 4, BYTES = 7 * sizeof(float) };
    const struct sp_adamw hp = {
        .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .bias1 = 1, .bias2 = 1};
    float *arrays = calloc(ELEMENTS, ARRAYS * sizeof *arrays);
    int cores = b->place.cores - b->place.gpus;
    const double start = sp_bench_now_s();
    struct sp_steady s = {0};

    SP_NEED(arrays, "out of memory for AdamW on %d parameters", ELEMENTS);
    sp_bench_show(b, "main memory");
    sp_team_settle(cores > 1 ? cores : 1);
    sp_transport_barrier();
    do {
        double waited = sp_bench_waited_s(), begin = sp_bench_now_s(), took;

        sp_adamw(&hp, &(struct sp_adamw_arrays){.n = ELEMENTS,
                                                .w = arrays,
                                                .g = arrays + ELEMENTS,
                                                .m = arrays + 2 * ELEMENTS,
                                                .v = arrays + 3 * ELEMENTS,
                                                .keeps_g = true});
        took = sp_bench_now_s() - begin;
        sp_steady_take(&s, took, sp_bench_waited_s() - waited, 1);
    } while (want_more(b, &s, 1, start, 40));
    sp_quality_add_shared(b->quality, "AdamW in main memory", &s);
    *rate = sp_measured(b->place.world.node_size * (double)ELEMENTS * BYTES / s.fastest);
    free(arrays);
}

static int measure_file(void *file, double rate[WAYS])
{
    struct sp_tier_rates rates;
    int err = sp_disk_measure(file, &rates);

    rate[WRITE] = rates.write;
    rate[READ] = rates.read;
    return err ? err : sp_disk_measure_both(file, &rate[BOTH]);
}

int sp_measure_disk(struct sp_bench *b, struct sp_disk *file, struct sp_disk_rates *disk)
{
    double rate[WAYS];
    int err;

    sp_bench_show(b, "the disk");
    err = measure_tier(b, "the disk", measure_file, file, rate);
    if (!err)
        *disk = (struct sp_disk_rates){rate[WRITE], rate[READ], rate[BOTH]};
    return err;
}
