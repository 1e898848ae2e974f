/*
 * The placement of stages: stage s runs on process floor(s R / p) of its pipeline's R processes, on
 * one of the process's workers. A CPU worker is a StarPU worker whose kernels use a team of OpenMP
 * threads on cores of their own. A GPU worker drives one GPU, which runs the kernels of all its
 * stages one after another.
 */
#ifndef SP_PLACEMENT_H
#define SP_PLACEMENT_H

#include "transport/world.h"
#include <stdbool.h>
#include <stdint.h>

enum { SP_MAX_GPUS = 16 }; /* per process */

struct sp_placement {
    struct sp_world world;
    int pipelines; /* into which the world is divided, each with all stages */
    int pipeline;  /* this process's */
    int stages;
    int n_local, first_local; /* local stages are consecutive */
    int workers;              /* StarPU workers of this process */
    int first_worker;         /* the first of them: 0 unless processes are simulated in one */
    int threads;              /* OpenMP threads of a worker */
    int cores;                /* cores this process may use for itself */
    bool bound;               /* threads are bound to cores */
    bool crowded;             /* no core is left for submission and messages */
    int gpus;                 /* the workers are these GPUs; 0: they are cores */
    int update_threads;   /* beside GPUs: of a worker of cores that updates parameters; 0: none */
    int gpu[SP_MAX_GPUS]; /* numbers of the CUDA runtime */
};

/* The number of processes of a pipeline; with D pipelines, pipeline q has ranks q, q + D, q + 2 D,
 * ... */
static inline int sp_pipeline_size(const struct sp_placement *pl)
{
    return pl->world.size / pl->pipelines;
}

/*
 * Places `stages` on the world, once in each of `pipelines` pipelines, whose number divides the
 * world's size. `threads` 0: as many as divide the cores evenly. One line on stderr and -EINVAL if
 * there are more processes than stages.
 */
int sp_placement_init(struct sp_placement *pl, const struct sp_world *world, int pipelines,
                      int stages, int threads);

/*
 * After sp_placement_init: the stages run on GPUs; each process of this machine sees `devices` of
 * them. Processes divide the GPUs; if there are more processes than GPUs, neighbours share one.
 */
void sp_placement_use_gpus(struct sp_placement *pl, int devices);

/* After that: one more worker has all cores that drive no GPU, or `threads` of them unless that is
 * 0, and updates the parameters whose optimizer's state is in main memory. */
void sp_placement_add_cores(struct sp_placement *pl, int threads);

/* The StarPU worker that does it: the one after the GPUs. */
static inline int sp_update_worker(const struct sp_placement *pl)
{
    return pl->first_worker + pl->workers;
}

/* To be called once it is known if the stages run on GPUs. One line on stderr and -EINVAL if OpenMP
 * gives a worker fewer threads than it should have: sums depend on the number of threads, so it
 * must not shrink without a word. */
int sp_placement_check_threads(const struct sp_placement *pl);

/* The rank that has a stage of a pipeline, and of this process's pipeline. */
static inline int sp_stage_rank_in(const struct sp_placement *pl, int stage, int pipeline)
{
    return (int)((int64_t)stage * sp_pipeline_size(pl) / pl->stages) * pl->pipelines + pipeline;
}

static inline int sp_stage_rank(const struct sp_placement *pl, int stage)
{
    return sp_stage_rank_in(pl, stage, pl->pipeline);
}

static inline bool sp_stage_is_local(const struct sp_placement *pl, int stage)
{
    return sp_stage_rank(pl, stage) == pl->world.rank;
}

/* Sets the local stages of a placement whose world and stages are set. */
static inline void sp_placement_find_local(struct sp_placement *pl)
{
    pl->n_local = pl->first_local = 0;
    for (int s = 0; s < pl->stages; s++)
        if (sp_stage_is_local(pl, s) && pl->n_local++ == 0)
            pl->first_local = s;
}

/* The worker of a local stage; if there are more stages than workers, consecutive stages share
 * one. */
static inline int sp_stage_worker(const struct sp_placement *pl, int stage)
{
    return pl->first_worker + (int)((int64_t)(stage - pl->first_local) * pl->workers / pl->n_local);
}

/* The first of the stages that share a worker with `stage`, on any process, assuming that all
 * processes have as many cores as this one. */
int sp_stage_worker_number(const struct sp_placement *pl, int stage);

/* The largest number of local stages that share a worker. */
static inline int sp_stages_of_worker(const struct sp_placement *pl)
{
    return (pl->n_local + pl->workers - 1) / pl->workers;
}

/* After StarPU started: gives each CPU worker its team of threads, its cores, and its behaviour
 * when idle. -EAGAIN after one line if a team has become smaller. */
int sp_placement_bind(const struct sp_placement *pl);

/* For phases in which one CPU worker has all the work: if `gathered`, the first worker takes the
 * threads and cores of all workers; if not, it takes its own again. Only while no task runs. */
void sp_placement_gather(const struct sp_placement *pl, bool gathered);

#endif
