/*
 * How to lay out a long sequence on a cluster (SPPO section 6.1): devices that compute a slice together
 * (SP), stages (PP) and slices (N), by trying all that the paper's heuristics leave:
 *
 *   - SP stays within a node, and PP does where SP * PP fits into one;
 *   - a device has 2 Ki to 16 Ki tokens of a slice, or as many slices as there are stages if that is
 *     more slices: fewer would leave stages idle; smaller ones where nothing else fits into memory.
 *
 * Pure: times are those of the list simulation at the cluster's rates, memory is that of the plan.
 */
#ifndef SP_SOLVER_H
#define SP_SOLVER_H

#include "plan/offload/offload.h"

enum { SP_TOKENS_LEAST = 2048, SP_TOKENS_MOST = 16384 };

/* The least tokens of a part where slices are shared out. */
enum { SP_TOKENS_OF_PART = 4 };

struct sp_cluster {
    int nodes, per_node;       /* devices of a node */
    double flops;              /* of a device, sustained, a second */
    double link, network;      /* bytes a second between devices of a node, and between nodes */
    struct sp_tier_rates tier; /* of a device, to where activations are offloaded; 0: not known */
    int64_t memory;            /* bytes of a device; 0: no limit */
    double task_s;             /* what the runtime takes for a task */
};

struct sp_solver_request {
    const char *schedule; /* one that cuts sequences */
    const struct sp_model *model;
    enum sp_dtype dtype; /* of activations, and of weights in products */
    int seq, batch, micro_batches;
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offload;
    const char *cut; /* --partition-slices; NULL: the schedule's */
    int stages;      /* PP, if that is given; 0: any */
    int slices;      /* N, likewise */
    struct sp_cluster cluster;
};

struct sp_solution {
    int sp, pp, n;
    double step_s;  /* of all micro-batches, without the optimizer */
    double bubble;  /* part of the stages' time */
    double stall_s; /* of it, waiting for the tier */
    int64_t memory; /* of the fullest device, bytes */
    bool fits;
};

/*
 * The best solutions, at most `most`: those that fit before those that do not, the fastest first, of
 * equal ones that with the fewest slices. Returns how many; -ENOMEM, -EINVAL after one line on stderr.
 */
int sp_solve(const struct sp_solver_request *want, struct sp_solution *best, int most);

/* How many ways there are to deal out the devices; with each slices have to be found. */
int sp_solver_layouts(const struct sp_solver_request *want);

#endif
