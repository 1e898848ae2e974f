/* The runtime, what is measured in turn, and where each number is from. */
#include "train/calibrate/calibrate.h"
#include "codelets/task/cuda.h"
#include "offload/disk.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "starpipe/trainer.h"
#include "train/calibrate/curves.h"
#include "train/calibrate/facts.h"
#include "train/calibrate/rates.h"
#include "train/start/device.h"
#include "transport/starpu_environment.h"
#include <stdlib.h>

enum { DISK_BYTES = 64 << 20 };

/* As many devices as a process has: GPUs, or its cores in teams of so many threads. */
static int place_devices(const struct sp_calibration *c, const struct sp_world *world,
                         struct sp_placement *pl)
{
    int gpus = c->device == SP_TRAIN_CPU ? 0 : sp_cuda_devices(c->device == SP_TRAIN_CUDA);
    int each, err;

    if (!gpus && c->device == SP_TRAIN_CUDA)
        return -ENODEV;
    err = sp_placement_init(pl, world, 1, world->size, c->threads);
    if (err)
        return err;
    each = gpus ? gpus / world->node_size : pl->cores / pl->threads;
    if (each > 1)
        err = sp_placement_init(pl, world, 1, each * world->size, c->threads);
    if (!err && gpus)
        sp_placement_use_gpus(pl, gpus);
    err = err ? err : sp_placement_check_threads(pl);
    for (int i = 0; !err && i < pl->gpus; i++)
        err = sp_cuda_usable(pl->gpu[i]);
    return err;
}

int sp_calibrate_prepare(const struct sp_calibration *c, const struct sp_world *world,
                         struct sp_placement *pl, struct sp_disk **disk)
{
    int err = place_devices(c, world, pl);

    *disk = NULL;
    if (!err && world->rank == 0)
        err = sp_disk_create(c->offload_dir, DISK_BYTES, sp_transport_abort, disk);
    return err;
}

/* ---- the runtime --------------------------------------------------------------------------- */

static int start(const struct sp_placement *pl)
{
    struct starpu_conf conf;
    int err;

    err = sp_starpu_environment_set(&conf, false);
    if (err)
        return err;
    sp_train_choose_workers(pl, &conf);
    conf.sched_policy = &sp_order_strict;
    conf.catch_signals = 0;
    err = sp_transport_start(&conf);
    if (err)
        return err;
    err = sp_placement_bind(pl);
    if (err)
        return err;
    return pl->gpus ? sp_cuda_start() : 0;
}

static void stop(const struct sp_placement *pl)
{
    if (pl->gpus)
        sp_cuda_stop();
    sp_transport_stop();
}

/* ---- measuring ----------------------------------------------------------------------------- */

/* All processes begin each curve together: their devices are at work at once. */
static void measure_curves(struct sp_bench *b, bool quick, struct sp_machine *m)
{
    for (int t = 0; t < SP_DTYPES; t++) {
        sp_transport_barrier();
        sp_measure_products(b, (enum sp_dtype)t, quick ? 1e8 : 1e12, &m->matmul[t]);
    }
    for (int i = 0; i < SP_DTYPES * SP_ATTENTION_PASSES; i++) {
        int t = i / SP_ATTENTION_PASSES, pass = i % SP_ATTENTION_PASSES;

        sp_transport_barrier();
        sp_measure_attention(b, (enum sp_dtype)t, (enum sp_attention_pass)pass, quick ? 2e9 : 1e13,
                             &m->attention[t][pass]);
    }
    sp_transport_barrier();
    sp_measure_memory(b, quick ? 1e7 : b->place.gpus ? 1e9 : 1e8, &m->memory);
    sp_transport_barrier();
}

/* Alone, devices of a node hand over through memory, those of GPUs through the host's. */
static void node_link(struct sp_bench *b, int peer, struct sp_machine *m)
{
    sp_bench_show(b, "messages in the node");
    if (peer > 0) {
        sp_measure_link(b, peer, &m->node);
        sp_machine_note(
            m, "node.link: messages between ranks 0 and %d over MPI, from the host's memory", peer);
        return;
    }
    if (b->place.gpus)
        m->node = (struct sp_link){.bandwidth = m->copy.both, .shared_by = 1};
    else
        sp_measure_memory_link(b, &m->node);
    m->node.latency_s = m->launch_s;
    sp_machine_note(m,
                    "node.link: not measured, there was one process: bandwidth of a copy through "
                    "memory, latency of a task");
}

static void network_link(struct sp_bench *b, int peer, struct sp_machine *m)
{
    sp_bench_show(b, "messages between nodes");
    if (peer > 0) {
        sp_measure_link(b, peer, &m->network);
        m->network.shared_by = m->devices_per_node;
        sp_machine_note(m,
                        "network: messages between ranks 0 and %d over MPI, from the host's "
                        "memory; all devices of a node share it",
                        peer);
        return;
    }
    m->network = m->node;
    sp_machine_note(m, "network: not measured, there was one node: as node.link");
}

/* How far the figures are to be trusted. */
static void judge(const struct sp_bench *b, bool quick, struct sp_machine *m)
{
    sp_machine_note(m, "%d figures, medians; %d did not get steady within 5 %% in their time%s",
                    b->figures, b->unsteady, quick ? ", which --quick made short" : "");
    if (!quick && 4 * b->unsteady > b->figures)
        sp_warn("%d of %d figures did not get steady within 5 %%: other programs seem to use this "
                "machine; calibrate again when they do not",
                b->unsteady, b->figures);
}

static int measure(struct sp_bench *b, const struct sp_calibration *c, struct sp_disk *disk,
                   struct sp_peers peers, struct sp_machine *m)
{
    int err = sp_machine_facts(&b->place, m);

    if (err)
        return err;
    sp_machine_note_origin(&b->place, m);
    measure_curves(b, c->quick, m);
    m->launch_s = sp_measure_task(b);
    sp_transport_barrier();
    err = sp_measure_copies(b, &m->copy);
    if (err)
        return err;
    node_link(b, peers.node, m);
    network_link(b, peers.network, m);
    sp_transport_barrier();
    if (disk) {
        err = sp_measure_disk(b, disk, &m->disk);
        sp_machine_note(m, "node.disk: a file in %s", c->offload_dir);
    }
    sp_transport_barrier();
    sp_bench_show(b, "%s", "");
    if (!err && b->place.world.rank == 0)
        judge(b, c->quick, m);
    return err;
}

int sp_calibrate(const struct sp_calibration *c, const struct sp_placement *pl,
                 struct sp_disk *disk, struct sp_machine *m)
{
    struct sp_peers peers = sp_find_peers(&pl->world);
    static struct sp_bench b;
    int err;

    b = (struct sp_bench){.place = *pl,
                          .figure_s = c->quick ? 0.02 : 0.4,
                          .longest_s = c->quick ? 0.05 : 0.6,
                          .shows = c->shows && pl->world.rank == 0};
    *m = (struct sp_machine){.launch_s = 0};
    err = start(pl);
    if (err)
        return err;
    err = sp_bench_create(&b);
    if (!err) {
        err = measure(&b, c, disk, peers, m);
        sp_bench_destroy(&b);
    }
    stop(pl);
    sp_disk_destroy(disk);
    return err;
}
