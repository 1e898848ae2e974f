/*
 * A calibration: finds the devices, then for each number of threads starts the runtime and measures; with the described
 * devices, which come last, measures all else, and notes how each number was obtained; at last judges the figures.
 */
#include "train/calibrate/calibrate.h"
#include "config.h"
#include "kernels/kernels.h"
#include "offload/disk.h"
#include "offload/host_memory.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/cuda_memory.h"
#include "sinks/starpu/device_memory.h"
#include "sinks/starpu/runtime.h"
#include "sp_error.h"
#include "starpipe/trainer.h"
#include "train/calibrate/quality.h"
#include "train/calibrate/rates.h"
#include "transport/transport.h"
#include <hwloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

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

/* ---- what needs no measuring: names and memory of the machine ------------------------------- */

/* Adds a line to m->source, if there is room. */
static void note(struct sp_machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct sp_machine *m, const char *format, ...)
{
    size_t at = strlen(m->source), room = sizeof m->source - at;
    va_list ap;

    if (at && room > 1)
        m->source[at++] = '\n', room--;
    va_start(ap, format);
    vsnprintf(m->source + at, room, format, ap);
    va_end(ap);
}

/* Tidies a text of the system's: characters that are no text, or that a file cannot hold, become
 * question marks. */
static void tidy(char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text == 0x7f)
            *text = '?';
}

/* Cores of the node, and the name of its processors. */
static int find_processors(char cpu[128], int *cores)
{
    hwloc_topology_t topology;
    hwloc_obj_t package;
    const char *model;

    if (hwloc_topology_init(&topology))
        return sp_error(EIO, "calibrate: hwloc does not start");
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return sp_error(EIO, "calibrate: hwloc does not tell this machine's parts");
    }
    package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    *cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    snprintf(cpu, 128, "%s", model && *model ? model : "CPU");
    tidy(cpu);
    hwloc_topology_destroy(topology);
    return *cores > 0 ? 0 : sp_error(EIO, "calibrate: hwloc finds no cores");
}

/* Devices of the node: those of all its processes; if they are cores, at least as many as would
 * fit on those that the processes may use. */
static int count_devices(const struct sp_placement *pl)
{
    int started = pl->workers * pl->world.node_size, cores = pl->cores * pl->world.node_size;

    if (pl->gpus || started * pl->threads > cores)
        return started;
    return cores / pl->threads > started ? cores / pl->threads : started;
}

/* Notes the machine, the versions and the day. */
static void note_origin(const struct sp_placement *pl, const char *cpu, int cores,
                        struct sp_machine *m)
{
    time_t now = time(NULL);
    struct utsname system;
    char day[32], starpu[32];

    strftime(day, sizeof day, "%Y-%m-%d", gmtime(&now));
    sp_runtime_version(starpu);
    note(m, "measured by %s calibrate on %s", PACKAGE_STRING, day);
    note(m, "machine: %d cores, %s; at work at once: %d times %s", cores, cpu,
         pl->workers * pl->world.size, m->device);
    note(m, "versions: StarPU %s, %s, %s, %s %s", starpu, sp_gemm_backend(), sp_transport_version(),
         uname(&system) ? "?" : system.sysname, uname(&system) ? "?" : system.release);
}

/* Sets name, device, memory_bytes, devices_per_node, host_bytes, and notes where they come from. 0, or -errno after one
 * line. */
static int describe(const struct sp_placement *pl, struct sp_machine *m)
{
    struct sp_host_memory host;
    char cpu[128];
    int64_t unused;
    int cores = 0, err = find_processors(cpu, &cores);

    if (err)
        return err;
    if (gethostname(m->name, sizeof m->name - 1) || !*m->name)
        strcpy(m->name, "calibrated");
    tidy(m->name);
    m->devices_per_node = count_devices(pl);
    sp_host_memory_read("", &host);
    m->host_bytes = host.node.bytes; /* that its processes may use */
    m->memory_bytes = m->host_bytes / m->devices_per_node;
    snprintf(m->device, sizeof m->device, "%d core%s of %.96s", pl->threads,
             pl->threads > 1 ? "s" : "", cpu);
    if (pl->gpus) {
        sp_cuda_name(pl->gpu[0], m->device);
        tidy(m->device);
        err = sp_cuda_memory(pl->gpu[0], &m->memory_bytes, &unused);
        if (err)
            return sp_error(-err, "cuda: GPU %d does not tell its memory", pl->gpu[0]);
    }
    note_origin(pl, cpu, cores, m);
    return 0;
}

/* ---- measuring ----------------------------------------------------------------------------- */

/* Measures the link within a node. A process alone hands over through memory, with GPUs through
 * the host's. */
static void measure_node_link(struct sp_bench *b, int peer, struct sp_machine *m)
{
    sp_bench_show(b, "messages in the node");
    if (peer > 0) {
        sp_measure_link(b, peer, &m->node);
        note(m, "node.link: messages between ranks 0 and %d over MPI, from the host's memory",
             peer);
        return;
    }
    if (b->place.gpus)
        m->node = (struct sp_link){.bandwidth = m->copy.both, .shared_by = 1};
    else
        sp_measure_memory_link(b, &m->node);
    m->node.latency_s = m->rates.launch_s;
    note(m, "node.link: not measured, there was one process: bandwidth of a copy through "
            "memory, latency of a task");
}

static void measure_network_link(struct sp_bench *b, int peer, struct sp_machine *m)
{
    sp_bench_show(b, "messages between nodes");
    if (peer > 0) {
        sp_measure_link(b, peer, &m->network);
        m->network.shared_by = m->devices_per_node;
        note(m,
             "network: messages between ranks 0 and %d over MPI, from the host's "
             "memory; all devices of a node share it",
             peer);
        return;
    }
    m->network = m->node;
    note(m, "network: not measured, there was one node: as node.link");
}

/* With the described devices: names and memory, their rates, and all that does not depend on their number of threads. */
static int measure_machine(struct sp_bench *b, const struct sp_effort *effort,
                           struct sp_peers peers, struct sp_disk *disk, const char *disk_dir,
                           struct sp_machine *m)
{
    int err = describe(&b->place, m);

    err = err ? err : sp_measure_rates(b, effort, &m->rates);
    err = err ? err : sp_measure_copies(b, &m->copy);
    if (err)
        return err;
    if (b->place.gpus) {
        sp_measure_host(b, &m->host_rate);
        note(m, "node.host_rate: AdamW on the cores that drive no GPU");
    }
    measure_node_link(b, peers.node, m);
    measure_network_link(b, peers.network, m);
    sp_transport_barrier();
    if (disk) {
        err = sp_measure_disk(b, disk, &m->disk);
        note(m, "node.disk: a file in %s", disk_dir);
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
    if (!err && pl->gpus) {
        err = sp_cuda_start();
        sp_vectors_on_gpus(true, NULL);
    }
    return err;
}

static void stop_runtime(const struct sp_placement *pl)
{
    if (pl->gpus)
        sp_cuda_stop();
    sp_transport_stop();
    sp_vectors_on_gpus(false, NULL);
}

/* Notes, on rank 0, how far the figures can be trusted, says so unless they are known to be rough, and refuses those that
 * no device can have. */
static int judge(const struct sp_quality *q, const struct sp_calibration *c, struct sp_machine *m)
{
    char text[1024];
    int err = sp_quality_check_rates(&m->rates);

    sp_quality_text(q, text, sizeof text);
    note(m, "medians of samples%s: %s",
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
