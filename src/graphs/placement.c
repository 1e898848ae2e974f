#include <stdbool.h>
#include "graphs/placement.h"
#include "kernels/cpu/team.h"
#include "sp_error.h"
#include "sinks/starpu/sink.h"
#include "transport/transport.h"
#include <hwloc.h>
#include <omp.h>
#include <stdlib.h>

static hwloc_topology_t topology;
static hwloc_cpuset_t mine; /* the cores this process may use */
static hwloc_cpuset_t pus;  /* one processing unit of each of these cores */

/* True if OpenMP binds threads. It then bound this thread before main, so the process may use all
 * of OpenMP's places. */
static bool openmp_binds(void)
{
    return omp_get_num_places() > 0 && hwloc_topology_is_thissystem(topology);
}

static void add_places(void)
{
    for (int place = 0; place < omp_get_num_places(); place++) {
        int n = omp_get_place_num_procs(place), *ids = calloc((size_t)n + 1, sizeof *ids);

        if (ids)
            omp_get_place_proc_ids(place, ids);
        for (int i = 0; ids && i < n; i++)
            hwloc_bitmap_set(mine, (unsigned)ids[i]);
        free(ids);
    }
}

/* The environment variable that makes OpenMP bind threads, for a warning; NULL: none. */
static const char *binding_variable(void)
{
    static const char *const names[] = {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES",
                                        "OMP_PROC_BIND"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return names[i];
    return NULL;
}

/* Warns if the process uses fewer cores than the machine has: the launcher may want this, or a
 * variable that was set for another program. */
static void warn_of_binding(int usable, int all)
{
    static bool warned;
    const char *name = binding_variable();

    if (warned || !name || usable == all || !openmp_binds())
        return;
    warned = true;
    sp_warn("%s=%s: this process uses %d of %d cores; starpipe places its threads itself and does "
            "not need "
            "the variable",
            name, getenv(name), usable, all);
}

/* Counts the cores of this process's binding; *restricted: a launcher gave it less than all. */
static int find_cores(bool *restricted)
{
    hwloc_cpuset_t part = hwloc_bitmap_alloc();
    int n, usable = 0;

    if (topology) { /* called before */
        hwloc_topology_destroy(topology);
        hwloc_bitmap_free(mine);
        hwloc_bitmap_free(pus);
    }
    hwloc_topology_init(&topology);
    hwloc_topology_load(topology);
    mine = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS))
        hwloc_bitmap_copy(mine, hwloc_topology_get_allowed_cpuset(topology));
    if (openmp_binds()) {
        add_places();
        hwloc_bitmap_and(mine, mine, hwloc_topology_get_allowed_cpuset(topology));
        /* the threads for messages and of StarPU inherit this binding */
        hwloc_set_cpubind(topology, mine, HWLOC_CPUBIND_THREAD);
    }
    *restricted = !hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(topology), mine);
    pus = hwloc_bitmap_alloc();
    n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < n; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);

        hwloc_bitmap_and(part, core->cpuset, mine);
        if (hwloc_bitmap_iszero(part))
            continue;
        hwloc_bitmap_set(pus, (unsigned)hwloc_bitmap_first(part));
        usable++;
    }
    hwloc_bitmap_free(part);
    return usable;
}

/* The number of workers of a process with `stages` stages. */
static int workers_of(int cores, int stages, int threads)
{
    int workers = stages < cores ? stages : cores;

    if (threads > 0 && workers * threads > cores && workers > 1)
        workers = cores / threads > 0 ? cores / threads : 1;
    return workers;
}

int sp_stage_worker_number(const struct sp_placement *pl, int stage)
{
    int rank = sp_stage_rank(pl, stage), first = stage, end = stage, workers;

    while (first > 0 && sp_stage_rank(pl, first - 1) == rank)
        first--;
    while (end < pl->stages && sp_stage_rank(pl, end) == rank)
        end++;
    workers = pl->gpus ? pl->gpus : workers_of(pl->cores, end - first, pl->threads);
    workers = workers < end - first ? workers : end - first;
    while (stage > first && (stage - first) * workers / (end - first) ==
                                (stage - 1 - first) * workers / (end - first))
        stage--;
    return stage;
}

int sp_placement_init(struct sp_placement *pl, const struct sp_world *world, int pipelines,
                      int stages, int threads)
{
    bool restricted;
    int cores, share, size;

    *pl = (struct sp_placement){.world = *world, .pipelines = pipelines, .stages = stages};
    size = sp_pipeline_size(pl);
    if (size > stages)
        return sp_error(EINVAL, "%d processes for %d stages: start at most %d", world->size,
                        pipelines * stages, pipelines * stages);
    pl->pipeline = world->rank % pipelines;
    sp_placement_find_local(pl);

    cores = find_cores(&restricted);
    if (world->rank == 0)
        warn_of_binding(cores, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
    cores = cores > 0 ? cores : 1;
    /* Unbound processes of one machine share its cores; rank k of the node takes the k-th part. */
    share = restricted ? cores : cores / world->node_size;
    pl->cores = share > 0 ? share : 1;
    pl->workers = workers_of(pl->cores, pl->n_local, threads);
    pl->threads = threads > 0 ? threads : pl->cores / pl->workers;
    pl->bound = share > 0 && pl->workers * pl->threads <= pl->cores;
    pl->crowded = !pl->bound || pl->workers * pl->threads >= pl->cores;
    if (pl->bound && !restricted) {
        int skip = world->node_rank * share, pu = hwloc_bitmap_first(pus);

        for (; skip > 0 && pu >= 0; skip--, pu = hwloc_bitmap_first(pus))
            hwloc_bitmap_clr(pus, (unsigned)pu);
    }
    return 0;
}

void sp_placement_use_gpus(struct sp_placement *pl, int devices)
{
    int share = devices / pl->world.node_size, first = pl->world.node_rank * share;

    if (share == 0) {
        first = (int)((int64_t)pl->world.node_rank * devices / pl->world.node_size);
        share = 1;
    }
    share = share < pl->n_local ? share : pl->n_local;
    pl->gpus = pl->workers = share < SP_MAX_GPUS ? share : SP_MAX_GPUS;
    pl->threads = 1;
    pl->bound = pl->crowded = false;
    for (int i = 0; i < pl->gpus; i++)
        pl->gpu[i] = first + i;
}

void sp_placement_add_cores(struct sp_placement *pl, int threads)
{
    int cores = pl->cores - pl->gpus;

    pl->update_threads = threads > 0 ? threads : cores > 1 ? cores : 1;
    if (pl->update_threads > sp_team_most())
        pl->update_threads = sp_team_most();
}

int sp_placement_check_threads(const struct sp_placement *pl)
{
    if (pl->gpus || pl->threads <= sp_team_most())
        return 0;
    return sp_error(EINVAL,
                    "OMP_THREAD_LIMIT=%d in the environment is less than the %d threads of a "
                    "worker: unset it, or give --threads %d",
                    sp_team_most(), pl->threads, sp_team_most());
}

/* The k-th processing unit of this process, -1 past the end. */
static int nth_pu(int k)
{
    int pu = hwloc_bitmap_first(pus);

    while (k-- > 0 && pu >= 0)
        pu = hwloc_bitmap_next(pus, pu);
    return pu;
}

struct team {
    const struct sp_placement *place;
    int smallest; /* size of a team smaller than the placement wants */
};

/* Binds the calling thread of a team. Some containers refuse; then the system places the thread. */
static void bind_thread(int pu)
{
    hwloc_cpuset_t set = pu >= 0 || openmp_binds() ? hwloc_bitmap_dup(mine) : NULL;

    if (!set)
        return;
    if (pu >= 0)
        hwloc_bitmap_only(set, (unsigned)pu);
    hwloc_set_cpubind(topology, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
}

/* Threads of a worker of cores. */
static int team_of(const struct sp_placement *pl)
{
    return pl->gpus ? pl->update_threads : pl->threads;
}

/* Runs on each worker: its OpenMP team, made here, lasts as long as the worker. */
static void bind_worker(void *arg)
{
    struct team *team = arg;
    const struct sp_placement *pl = team->place;
    int worker = sp_worker_here(), size = 1;

    sp_team_settle(team_of(pl));
#pragma omp parallel
    {
        bind_thread(pl->bound ? nth_pu(worker * pl->threads + omp_get_thread_num()) : -1);
#pragma omp master
        size = omp_get_num_threads();
    }
    if (size < team_of(pl))
        __atomic_store_n(&team->smallest, size, __ATOMIC_RELAXED);
}

/*
 * An idle worker rests at least this long when submission, messages or other processes need its
 * core; Linux adds some 50 us. Four ranks on two cores run 2.5 times as fast as when idle workers
 * poll, two ranks 1.2 to 2 times, and a task in one process costs a fifth less. A tighter timer
 * (PR_SET_TIMERSLACK) loses most of the gain of the four ranks again.
 */
enum { IDLE_REST_NS = 5000 };

int sp_placement_bind(const struct sp_placement *pl)
{
    struct team team = {.place = pl, .smallest = team_of(pl)};

    sp_workers_rest(pl->crowded ? IDLE_REST_NS : 0);
    sp_transport_crowded(pl->crowded);
    sp_workers_run(bind_worker, &team);
    if (team.smallest == team_of(pl))
        return 0;
    return sp_error(EAGAIN, "OpenMP gives a worker %d of %d threads: give --threads %d",
                    team.smallest, team_of(pl), team.smallest);
}

void sp_placement_gather(const struct sp_placement *pl, bool gathered)
{
    struct sp_placement first = *pl;
    struct team team = {.place = &first};

    if (pl->gpus || pl->workers == 1)
        return;
    if (gathered)
        first.threads *= pl->workers;
    if (first.threads > sp_team_most())
        first.threads = sp_team_most();
    sp_worker_run(0, bind_worker, &team);
    sp_workers_rest(gathered || pl->crowded ? IDLE_REST_NS : 0);
}
