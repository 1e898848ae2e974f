#include "train/calibrate/rates.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/cuda_memory.h"
#include "config.h"
#include "kernels/kernels.h"
#include "offload/host_memory.h"
#include "sp_error.h"
#include "transport/transport.h"
#include "sinks/starpu/runtime.h"
#include <hwloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

void sp_machine_note(struct sp_machine *m, const char *format, ...)
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
static int look_around(char cpu[128], int *cores)
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
static int devices(const struct sp_placement *pl)
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
    sp_machine_note(m, "measured by %s calibrate on %s", PACKAGE_STRING, day);
    sp_machine_note(m, "machine: %d cores, %s; at work at once: %d times %s", cores, cpu,
                    pl->workers * pl->world.size, m->device);
    sp_machine_note(m, "versions: StarPU %s, %s, %s, %s %s", starpu, sp_gemm_backend(),
                    sp_transport_version(), uname(&system) ? "?" : system.sysname,
                    uname(&system) ? "?" : system.release);
}

int sp_machine_facts(const struct sp_placement *pl, struct sp_machine *m)
{
    struct sp_host_memory host;
    char cpu[128];
    int64_t unused;
    int cores = 0, err = look_around(cpu, &cores);

    if (err)
        return err;
    if (gethostname(m->name, sizeof m->name - 1) || !*m->name)
        strcpy(m->name, "calibrated");
    tidy(m->name);
    m->devices_per_node = devices(pl);
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
