/* What the buffers of a run take, known before it: its own graph, submitted to a sink that counts. */
#ifndef SP_GRAPH_COUNT_H
#define SP_GRAPH_COUNT_H

#include "graphs/step.h"

/* Of a stage, bytes. */
struct sp_count {
    int64_t
        buffers; /* made for activations, gradients under way, blocks gathered whole: as the log has them */
    int64_t scratch; /* of tasks, of all stages of its process */
    int64_t sent;    /* of messages of a step to other processes */
    int64_t stashed; /* activations alive from forward to backward, at the highest */
};

/* The steps that are counted. */
struct sp_count_steps {
    int n;
    bool
        ahead; /* each is begun before the one before it is known to be right (--post-validation) */
    bool clips;
};

/*
 * count[stages] after so many steps of a pipeline in `processes` processes, each with the stages that it would have (0: as
 * `place` says). `cfg` says all but the sink. 0 or -errno after one line.
 */
int sp_count_stages(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    int processes, const struct sp_count_steps *steps, struct sp_count *count);

#endif
