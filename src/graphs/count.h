/* What the buffers of a run take, known before it: its own graph, submitted to a sink that counts. */
#ifndef SP_GRAPH_COUNT_H
#define SP_GRAPH_COUNT_H

#include "graphs/step.h"

/* Of a stage, bytes. */
struct sp_count {
    int64_t
        fixed; /* made before the first step: blocks, gradients, the optimizer's state, tokens */
    int64_t
        buffers; /* made for what comes and goes, and for blocks gathered whole: as the log has it */
    int64_t scratch; /* of tasks. Like `fixed` of all stages of the process */
    int64_t sent;    /* to other processes, in a step */
    int64_t stashed; /* kept from forward to backward, at the highest */
};

/* Steps after which nothing is made any more. */
enum { SP_COUNT_STEADY = 4 };

/* The steps that are counted. */
struct sp_count_steps {
    int n;
    bool
        ahead; /* each begins before it is known whether the one before is right (--post-validation) */
    bool clips;
};

/*
 * count[stages] after so many steps of a pipeline in `processes` processes, each with the stages that it would have. `cfg`
 * says all but the sink. 0 or -errno after one line.
 */
int sp_count_stages(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    int processes, const struct sp_count_steps *steps, struct sp_count *count);

/*
 * The same of any step but the first ones, with a process a stage and without submitting all of it. `shape` is that of the
 * graph. 0; -errno after one line; 1: this plan cannot be counted so.
 */
int sp_count_by_classes(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        const struct sp_shape *shape, struct sp_count *count);

/* Where process r of so many of a pipeline has its stages. */
struct sp_placement sp_count_place(const struct sp_placement *like, int processes, int r);
/* What a graph has of one of its stages now. */
struct sp_count sp_count_of_stage(const struct sp_graph *g, const struct sp_stage *st);

#endif
