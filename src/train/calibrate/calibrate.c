/*
 * A calibration: finds the devices, then for each number of threads starts the runtime and measures; with the described
 * devices, which come last, measures all else, and notes how each number was obtained; at last judges the figures.
 */
#include "train/calibrate/calibrate.h"
#include "sinks/starpu/cuda.h"
#include "offload/disk.h"
#include "sp_error.h"
#include "starpipe/trainer.h"
#include "train/calibrate/quality.h"
#include "train/calibrate/rates.h"
#include "transport/transport.h"
#include "sinks/starpu/runtime.h"
#include <stdlib.h>

enum { DISK_BYTES = 64 << 20 };

/* Places as many devices as a process has: GPUs, or its cores in teams of `threads` threads. */
static int place_devices(const struct sp_calibration *c, const struct sp_world *world, int threads,
                         struct sp_placement *pl)
{
    int gpus = c->device == SP_TRAIN_CPU ? 0 : sp_cuda_devices(c->device == SP_TRAIN_CUDA);
    int each, err;

    if (!gpus && c->device == SP_TRAIN_CUDA)
        return -ENODEV;
    err = sp_placement_init(pl, world, 1, world->size, threads);
    if (err)
        return err;
    each = gpus ? gpus / world->node_size : pl->cores / pl->threads;
    if (each > 1)
        err = sp_placement_init(pl, world, 1, each * world->size, threads);
    if (!err && gpus)
        sp_placement_use_gpus(pl, gpus);
    err = err ? err : sp_placement_check_threads(pl);
    for (int i = 0; !err && i < pl->gpus; i++)
        err = sp_cuda_usable(pl->gpu[i]);
    return err;
}

/* Places the described devices. If nobody says how many threads they have, devices of 1, 2, 4
 * ... threads come before. */
static int place_all(const struct sp_calibration *c, const struct sp_world *world,
                     struct sp_calibrated *devices)
{
    struct sp_placement last;
    int err = place_devices(c, world, c->threads, &last);

    devices->n = 0;
    for (int threads = 1; !err && !c->threads && !last.gpus && threads < last.threads; threads *= 2)
        err = place_devices(c, world, threads, &devices->place[devices->n++]);
    devices->place[devices->n++] = last;
    return err;
}

int sp_calibrate_prepare(const struct sp_calibration *c, const struct sp_world *world,
                         struct sp_calibrated *devices, struct sp_disk **disk)
{
    int err = place_all(c, world, devices);
    bool alike = sp_transport_same((uint64_t)devices->n); /* processes measure each together */

    *disk = NULL;
    if (!err && !alike)
        err = sp_error(EINVAL, "calibrate: the processes have different numbers of cores; give all "
                               "of them --threads T");
    if (!err && world->rank == 0 && c->offload_dir)
        err = sp_disk_create(c->offload_dir, DISK_BYTES, sp_transport_abort, disk);
    return err;
}

/* ---- measuring ----------------------------------------------------------------------------- */

/* Measures the link within a node. A process alone hands over through memory, with GPUs through
 * the host's. */
static void measure_node_link(struct sp_bench *b, int peer, struct sp_machine *m)
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
    m->node.latency_s = m->rates.launch_s;
    sp_machine_note(m,
                    "node.link: not measured, there was one process: bandwidth of a copy through "
                    "memory, latency of a task");
}

static void measure_network_link(struct sp_bench *b, int peer, struct sp_machine *m)
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

/* With the described devices: names and memory, their rates, and all that does not depend on their number of threads. */
static int measure_machine(struct sp_bench *b, const struct sp_effort *effort,
                           struct sp_peers peers, struct sp_disk *disk, const char *disk_dir,
                           struct sp_machine *m)
{
    int err = sp_machine_facts(&b->place, m);

    err = err ? err : sp_measure_rates(b, effort, &m->rates);
    err = err ? err : sp_measure_copies(b, &m->copy);
    if (err)
        return err;
    measure_node_link(b, peers.node, m);
    measure_network_link(b, peers.network, m);
    sp_transport_barrier();
    if (disk) {
        err = sp_measure_disk(b, disk, &m->disk);
        sp_machine_note(m, "node.disk: a file in %s", disk_dir);
    }
    sp_transport_barrier();
    return err;
}

static struct sp_effort effort_of(const struct sp_calibration *c, bool gpus)
{
    struct sp_effort e = c->quick ? (struct sp_effort){1e8, 2e9, 1e7, 1}
                                  : (struct sp_effort){1e12, 1e13, gpus ? 1e9 : 1e8, 8};

    e.seconds = c->seconds > 0 ? c->seconds : e.seconds;
    return e;
}

static int start_runtime(const struct sp_placement *pl)
{
    const struct sp_runtime runtime = {.place = pl};
    bool started;
    int err = sp_runtime_start(&runtime, &started);

    if (err && started)
        sp_transport_stop();
    err = err ? err : sp_placement_bind(pl);
    if (err)
        return err;
    return pl->gpus ? sp_cuda_start() : 0;
}

static void stop_runtime(const struct sp_placement *pl)
{
    if (pl->gpus)
        sp_cuda_stop();
    sp_transport_stop();
}

/* Notes, on rank 0, how far the figures can be trusted, says so unless they are known to be rough, and refuses those that
 * no device can have. */
static int judge(const struct sp_quality *q, const struct sp_calibration *c, struct sp_machine *m)
{
    char text[1024];
    int err = sp_quality_check_rates(&m->rates);

    sp_quality_text(q, text, sizeof text);
    sp_machine_note(m, "medians of samples%s: %s",
                    c->quick ? ", in the short time that --quick gives them" : "", text);
    for (int i = 0; i < m->teams && !err; i++)
        err = sp_quality_check_rates(&m->team[i]);
    if (!err && q->unsteady && !c->rough)
        sp_warn("calibrate: %s", text);
    return err;
}

int sp_calibrate(const struct sp_calibration *c, const struct sp_calibrated *devices,
                 struct sp_disk *disk, struct sp_machine *m)
{
    const struct sp_world *world = &devices->place[0].world;
    struct sp_peers peers = sp_find_peers(world);
    struct sp_quality quality = {0};
    static struct sp_bench b;
    int err = 0;

    *m = (struct sp_machine){.teams = 0};
    for (int i = 0; i < devices->n && !err; i++) {
        const struct sp_effort effort = effort_of(c, devices->place[i].gpus);

        b = (struct sp_bench){.place = devices->place[i],
                              .turn_s = c->quick ? 4e-3 : 10e-3,
                              .longest_s = c->quick ? 3e-3 : 0.08,
                              .shows = c->shows && world->rank == 0,
                              .rough = c->rough,
                              .quality = &quality};
        err = start_runtime(&b.place);
        if (err)
            break;
        err = sp_bench_create(&b);
        if (!err) {
            if (i + 1 < devices->n) /* another number of threads */
                err = sp_measure_rates(&b, &effort, &m->team[m->teams++]);
            else
                err = measure_machine(&b, &effort, peers, disk, c->offload_dir, m);
            sp_bench_show(&b, "%s", "");
            sp_bench_destroy(&b);
        }
        stop_runtime(&b.place);
    }
    sp_disk_destroy(disk);
    return err || world->rank > 0 ? err : judge(&quality, c, m);
}
