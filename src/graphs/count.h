/* What the buffers of a run take, known before it: its own graph, submitted to a sink that counts. */
#ifndef SP_GRAPH_COUNT_H
#define SP_GRAPH_COUNT_H

#include "graphs/step.h"

/* Bytes of a stage; `fixed` and `scratch` are those of all stages of its process. */
struct sp_count {
    int64_t fixed;   /* made before the first step: blocks with the optimizer's state, tokens */
    int64_t buffers; /* made for what comes and goes, and gathered blocks: as the log has it */
    int64_t scratch; /* of tasks */
    int64_t sent;    /* to other processes, in a step */
    int64_t stashed; /* kept from forward to backward, at the highest */
    int64_t
        beside; /* of buffers that are in use what is not stashed, at the highest, or more than that */
};

/* Steps after which nothing is made any more. */
enum { SP_COUNT_STEADY = 4 };

/* The steps that are counted. */
struct sp_count_steps {
    int n;
    bool ahead; /* each begins before the one before is known to be right (--post-validation) */
    bool clips;
};

/*
 * count[stages] after so many steps of a pipeline in `processes` processes, each with the stages that it would have. `cfg`
 * says all but the sink. 0 or -errno after one line.
 */
int sp_count_stages(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    int processes, const struct sp_count_steps *steps, struct sp_count *count);

/* The two ways to it. Every task is submitted, of no more steps than it takes until nothing is made. */
int sp_count_whole(const struct sp_graph_config *cfg, const struct sp_placement *place,
                   int processes, const struct sp_count_steps *steps, struct sp_count *count);
/* A few micro-batches are submitted, with a process a stage, as in any step but the first ones. 1: this plan cannot be
 * counted so. */
int sp_count_by_classes(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        struct sp_count *count);

/* Where process r of so many of a pipeline has its stages. */
struct sp_placement sp_count_place(const struct sp_placement *like, int processes, int r);
/* What a graph has of one of its stages now. */
struct sp_count sp_count_of_stage(const struct sp_graph *g, const struct sp_stage *st);

#endif
