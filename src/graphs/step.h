/* One training step: all ops in order, the gradient norm, the update, the reports. */
#ifndef SP_STEP_H
#define SP_STEP_H

#include "graphs/graph.h"

/* Measured on one stage during one step. */
struct sp_stage_report {
    double busy_us;      /* sum of task times of the ops */
    double idle_us;      /* between the first op and the last of all stages, not busy */
    double core_wait_us; /* part of busy_us in which its worker had no core to run on */
    double comm_wait_us; /* ready to run but for a message that was on its way */
    double bubble_ratio; /* idle / (busy + idle) */
    double update_us;    /* norm and optimizer of the step before */
    double peak_bytes;   /* stashed activations, highest */
    double live_bytes;   /* stashed activations after the step */
    double pool_bytes;   /* all activation buffers ever made */
    double bytes_sent;   /* in this step */
    double left_bytes, returned_bytes; /* of activations that left memory in this step, came back */
    double stall_us;                   /* its worker waited for them to leave or to come back */
    double transfer_us;  /* the disk of its process was at work; with the first stage of each */
    double device_bytes; /* of its process, highest so far: on its GPUs; 0: it has none */
    double buffers_bytes, resident_bytes; /* of its process, highest so far: of StarPU, and all that
                                           * is in memory; of runs that offload */
    double polling_us; /* CPU time of its process's thread for messages, since the report before */
    int worker;        /* of its process */
    struct sp_op_record *ops; /* [ops of the program], microseconds from the step's first op */
    int n_ops;
};

struct sp_step_report {
    int asks;                       /* bits that this process asks all of them, set before */
    int asked;                      /* those of all processes, on every rank */
    double loss;                    /* mean cross-entropy over the tokens of the step, nats */
    double grad_norm;               /* before clipping */
    double step_us;                 /* wall-clock time on this process */
    double span_us;                 /* first op to last op, all stages */
    struct sp_stage_report *stages; /* [stages]; on rank 0 all, elsewhere only the local ones */
};

int sp_step_report_create(const struct sp_graph *g, struct sp_step_report *r);
void sp_step_report_destroy(const struct sp_graph *g, struct sp_step_report *r);
/* to = from, both created of the same graph. */
void sp_step_report_copy(const struct sp_graph *g, const struct sp_step_report *from,
                         struct sp_step_report *to);

/*
 * Runs step k of the data: forward and backward of every micro-batch. Afterwards the gradients
 * are whole (replicas summed) and the norm is known; weights are not changed. The report is
 * complete on rank 0. Data that cannot be read ends all processes, after one line on stderr.
 */
void sp_step_gradients(struct sp_graph *g, const struct sp_data *data, uint64_t k,
                       struct sp_step_report *report);

/* Clips, updates the weights and clears the gradients. */
void sp_step_update(struct sp_graph *g, const struct sp_update *hp, struct sp_step_report *report);

/*
 * The same in pieces, for steps without a barrier between them (Qi et al. 2023, "Zero Bubble
 * Pipeline Parallelism", section 4: post-validation of the optimizer). Step k is begun with the
 * forwards that come before its first backward, and submitted to its end by sp_step_rest; then its
 * update is submitted `beside` the state before it, step k+1 is begun, and sp_step_finish waits for
 * the report of step k. If the norm says that the gradient had to be clipped, sp_step_undo forgets
 * the forwards of step k+1 and the update, bit for bit; the update is submitted again, and step k+1
 * begun again. All processes make the same calls.
 */
void sp_step_begin(struct sp_graph *g, const struct sp_data *data, uint64_t k);
void sp_step_rest(struct sp_graph *g, const struct sp_update *ahead, bool beside);
void sp_step_update_submit(struct sp_graph *g, const struct sp_update *hp, bool beside);
void sp_step_finish(struct sp_graph *g, struct sp_step_report *report);
void sp_step_undo(struct sp_graph *g);

/*
 * For families: the gradient of a block is whole although the step goes on. If sp_step_rest was given
 * the update, `ahead`, the block gets it at once, so that the next step can begin with it;
 * sp_step_update_submit then makes the others.
 */
void sp_step_close(struct sp_graph *g, struct sp_stage *st, struct sp_block *b);

#endif
