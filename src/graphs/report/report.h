/* Gathers the measurements of all stages on rank 0, and gives every rank the norm. */
#ifndef SP_REPORT_H
#define SP_REPORT_H

#include "graphs/graph.h"

/* One end of a message with another process, microseconds from the step's first op. */
struct sp_message_end {
    int number; /* the message's number in the step */
    bool sends;
    double ready_us, begun_us, ended_us; /* as in struct sp_transfer; 0: not known */
};

/* Measured on one stage during one step. */
struct sp_stage_report {
    double busy_us;      /* sum of task times of the ops */
    double idle_us;      /* between the first op and the last of all stages, not busy */
    double core_wait_us; /* part of busy_us in which its worker had no core to run on */
    double comm_wait_us; /* only waiting for a message on its way */
    double bubble_ratio; /* idle / (busy + idle) */
    double update_us;    /* norm and optimizer of the step before */
    double peak_bytes;   /* stashed activations, highest */
    double live_bytes;   /* stashed activations after the step */
    double pool_bytes;   /* all activation buffers ever made */
    double bytes_sent;   /* in this step */
    int messages_sent;   /* likewise, to processes of any pipeline */
    /* activations evicted in this step, fetched; with the optimizer's evicted state, or the
     * gradients and weights for cores that update it */
    double left_bytes, returned_bytes;
    double stall_us;                      /* its worker waited for evictions or fetches */
    double transfer_us;                   /* its process's disk was at work; at its first stage */
    double device_bytes;                  /* its process's peak on GPUs; 0: it has no GPU */
    double buffers_bytes, resident_bytes; /* if the run offloads: of its process, highest so far:
                                           * StarPU's buffers, and all resident memory */
    double polling_us; /* CPU time of its process's message thread since the last report */
    int worker;        /* in its process */
    int n_messages;
    struct sp_message_end *messages; /* [n_messages] at most as many as sp_graph.records says */
    double *left_at_us,
        *back_at_us; /* [units] of sp_graph_config.evictions: when each was evicted, when it was
                      * asked back; 0: not at all, or unknown */
    struct sp_op_record *ops; /* [ops of the program], microseconds from the step's first op */
    int n_ops;
};

struct sp_step_report {
    int asks;                       /* bits that this process sends to all, set before */
    int asked;                      /* the bits of all processes, on every rank */
    double loss;                    /* mean cross-entropy over the tokens of the step, nats */
    double grad_norm;               /* before clipping */
    double step_us;                 /* wall-clock time on this process */
    double span_us;                 /* first op to last op, all stages */
    struct sp_stage_report *stages; /* [stages]; on rank 0 all, elsewhere only the local ones */
};

int sp_step_report_create(const struct sp_graph *g, struct sp_step_report *r);
void sp_step_report_destroy(const struct sp_graph *g, struct sp_step_report *r);
/* The same when the graph no longer exists. */
void sp_step_reports_free(struct sp_step_report *r, int stages);
/* Copies a report; both belong to the same graph. */
void sp_step_report_copy(const struct sp_graph *g, const struct sp_step_report *from,
                         struct sp_step_report *to);

/* To be called on every rank after the step's tasks ended. Sets loss and norm on every rank. */
void sp_report_gather(struct sp_graph *g, struct sp_step_report *report);

#endif
