/*
 * Where stages run: stage s on process floor(s R / p) of its pipeline, and inside a process on a worker. A CPU
 * worker is a StarPU worker whose kernels use a team of OpenMP threads on cores of their own; a
 * GPU worker drives one GPU, on which the kernels of all its stages run one after another.
 */
#ifndef SP_PLACEMENT_H
#define SP_PLACEMENT_H

#include "transport/world.h"
#include <stdbool.h>
#include <stdint.h>

enum { SP_MAX_GPUS = 16 }; /* of a process */

struct sp_placement {
    struct sp_world world;
    int pipelines; /* that the world is dealt out to, each with all stages */
    int pipeline;  /* of this process */
    int stages;
    int n_local, first_local; /* local stages are consecutive */
    int workers;              /* StarPU workers of this process */
    int first_worker;         /* the first of them: 0, but where processes are simulated in one */
    int threads;              /* OpenMP threads of a worker */
    int cores;                /* cores this process may use for itself */
    bool bound;               /* threads are bound to cores */
    bool crowded;             /* no core is left for submission and messages */
    int gpus;                 /* the workers are these GPUs; 0: they are cores */
    int gpu[SP_MAX_GPUS];     /* as the CUDA runtime numbers them */
};

/* Processes of a pipeline: of D pipelines, q has ranks q, q + D, q + 2 D, ... */
static inline int sp_pipeline_size(const struct sp_placement *pl)
{
    return pl->world.size / pl->pipelines;
}

/*
 * Places `stages` on the world, once in each of so many pipelines, which divide its size. `threads` 0: as many
 * as share the cores evenly. One line on stderr and -EINVAL where there are more processes than stages.
 */
int sp_placement_init(struct sp_placement *pl, const struct sp_world *world, int pipelines,
                      int stages, int threads);

/*
 * After sp_placement_init: the stages run on GPUs, of which each process of this machine sees
 * `devices`. Processes divide them; where they are more than the GPUs, neighbours share one.
 */
void sp_placement_use_gpus(struct sp_placement *pl, int devices);

/* Once it is known whether the stages run on GPUs: one line on stderr and -EINVAL where OpenMP gives a worker fewer
 * threads than it should have. Sums depend on how many there are, so that fewer are not taken without a word. */
int sp_placement_check_threads(const struct sp_placement *pl);

/* The process that has a stage of a pipeline, and of this process's. */
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

/* Sets the local stages of a placement, whose world and stages are set. */
static inline void sp_placement_find_local(struct sp_placement *pl)
{
    pl->n_local = pl->first_local = 0;
    for (int s = 0; s < pl->stages; s++)
        if (sp_stage_is_local(pl, s) && pl->n_local++ == 0)
            pl->first_local = s;
}

/* Worker of a local stage: consecutive stages share one where there are more than workers. */
static inline int sp_stage_worker(const struct sp_placement *pl, int stage)
{
    return pl->first_worker + (int)((int64_t)(stage - pl->first_local) * pl->workers / pl->n_local);
}

/* The first of the stages that share a worker with one of any process, if all processes have as many cores
 * as this one. */
int sp_stage_worker_number(const struct sp_placement *pl, int stage);

/* Local stages that share a worker, at most. */
static inline int sp_stages_of_worker(const struct sp_placement *pl)
{
    return (pl->n_local + pl->workers - 1) / pl->workers;
}

/* After StarPU started: gives each CPU worker its team of threads, its cores, and the
 * manners of an idle one. -EAGAIN after one line where a team has become smaller. */
int sp_placement_bind(const struct sp_placement *pl);

/* Where one CPU worker has all the work: the first takes the threads and cores of all of them if
 * `gathered`, its own again if not. Only while no task is in flight. */
void sp_placement_gather(const struct sp_placement *pl, bool gathered);

#endif
