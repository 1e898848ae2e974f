/* Counts the memory of a run before it starts: submits the run's own graph to a sink that only
 * counts. */
#ifndef SP_GRAPH_COUNT_H
#define SP_GRAPH_COUNT_H

#include "graphs/step.h"

/* Bytes of a stage; `fixed` and `scratch` are totals over all stages of its process. */
struct sp_count {
    int64_t fixed;   /* made before the first step: blocks with the optimizer's state, tokens */
    int64_t buffers; /* activation buffers and gathered blocks, as the log reports them */
    int64_t scratch; /* scratch of tasks */
    int64_t sent;    /* to other processes, in a step */
    int64_t stashed; /* kept from forward to backward, at the highest */
    int64_t beside;  /* buffers in use but not stashed, at the highest, or an upper bound */
};

/* After this many steps a run makes no new buffer. */
enum { SP_COUNT_STEADY = 4 };

/* The steps that are counted. */
struct sp_count_steps {
    int n;
    bool ahead; /* each begins before the previous one is validated (--post-validation) */
    bool clips;
};

/*
 * Fills count[stages] for a pipeline of `processes` processes after `steps`; each process has the
 * stages that it would have in a run. `cfg` sets everything but the sink. 0 or -errno after one
 * line.
 */
int sp_count_stages(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    int processes, const struct sp_count_steps *steps, struct sp_count *count);

/* First way to count: submits every task of as many steps as it takes until no new buffer is
 * made. */
int sp_count_whole(const struct sp_graph_config *cfg, const struct sp_placement *place,
                   int processes, const struct sp_count_steps *steps, struct sp_count *count);
/* Second way: one process per stage, submits only a few micro-batches, as they are in any step but
 * the first ones. 1: this plan cannot be counted in this way. */
int sp_count_by_classes(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        struct sp_count *count);

/* The same, but submits every action of a step: for plans with evictions. */
int sp_count_by_actions(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        struct sp_count *count);

/* The placement of process r of `processes` in a pipeline. */
struct sp_placement sp_count_place(const struct sp_placement *like, int processes, int r);
/* The current count of one stage of a graph. */
struct sp_count sp_count_of_stage(const struct sp_graph *g, const struct sp_stage *st);

#endif
