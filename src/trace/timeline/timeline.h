/*
 * The record of one step: when every op ran and what it waited for, when every message was in
 * transit. It is filled from a measured step, from a simulated one, or from a file (json.h).
 * Pictures (gantt.h), the report of a step (waits.h, causes.h) and comparisons use only this
 * record.
 *
 * Times are in milliseconds from the step's first op, or in units of costs if there is no machine;
 * NaN: unknown.
 */
#ifndef SP_TIMELINE_H
#define SP_TIMELINE_H

#include "policies/lowering/action.h"
#include "policies/plan.h"
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

enum sp_timeline_source {
    SP_TIMELINE_MEASURED,  /* a run */
    SP_TIMELINE_SIMULATED, /* the graph of a run in virtual time */
    SP_TIMELINE_PREDICTED  /* the list simulation */
};

struct sp_timeline_op {
    struct sp_op op;
    int stage, index;  /* position in the stage's program */
    bool split;        /* a backward whose weight gradient is a separate op */
    int turn;          /* position in the order of submission of all stages */
    double start, end; /* start of its first task, end of its last one */
    double busy;       /* in tasks */
    double core_wait;  /* part of `busy` in which its worker had no core */
    double stall;      /* its tasks' wait for evictions and fetches */
    double late;       /* time between its tasks until the next one was submitted */
    double exchange;   /* time between its tasks for exchanges within its stage */
    double out;        /* when it had written its output for others */
    double submitted;  /* when its first task was submitted */
    double ready;      /* when that task had all its inputs */
    double arrived;    /* the last of its messages from other processes; NaN: it had none */
    int alive, after;  /* activations of the stage while it runs, and after its end */
    int64_t bytes, bytes_after; /* of these activations; 0: unknown */
    int first_dep, deps;        /* in struct sp_timeline.dep */
};

/* A dependency of an op. */
struct sp_timeline_dep {
    int op;      /* number of the producer */
    bool beside; /* the producer must have begun, not ended */
};

struct sp_timeline_message {
    enum sp_action_kind kind; /* SEND, or the kind of a collective or a move */
    char tensor[SP_TENSOR_TEXT];
    int64_t bytes;
    int from, to;       /* stages; equal for a move */
    int writer, reader; /* numbers of ops; -1: none */
    double ready;       /* when it was written */
    double posted;      /* when the receiver posted its receive */
    double begun;       /* when it was given to the network */
    double sent;        /* when its interface was free for it */
    double arrived;
};

struct sp_timeline_stage {
    int rank;   /* its process */
    int lane;   /* the first stage that shares its worker */
    int layers; /* layers that it holds; 0: unknown */
    double busy, idle, core_wait, comm_wait;
    double update;          /* norm and optimizer, in tasks */
    double stall;           /* waits for evictions and fetches */
    double bubble;          /* idle / (idle + busy) */
    int64_t bytes_sent;     /* to other processes */
    int64_t peak_bytes;     /* stashed activations; 0: unknown */
    int64_t left, returned; /* bytes of activations that were evicted, and fetched */
    int peak;               /* activations */
};

struct sp_timeline {
    enum sp_timeline_source source;
    char unit[8]; /* "ms", or "" for the unit of costs */
    char schedule[192], model[128], machine[192];
    char *options; /* as the user gave them, JSON or text; may be NULL */
    int step;      /* number in its run, from 1; -1: none */
    int stages, micro_batches, chunks, slices, layers, processes;
    bool parts;                      /* ops are parts of layers */
    bool overlaps;                   /* the step begins before the previous one has ended */
    double share;                    /* one activation, as part of a micro-batch on a whole stage */
    double span;                     /* from the first op to the last */
    double length;                   /* of the step, until the next one can begin */
    double bubble;                   /* mean of the stages */
    struct sp_timeline_stage *stage; /* [stages] */
    int n_ops, n_deps, n_messages;
    size_t cap_messages;
    int *first_op;             /* [stages + 1] number of a stage's first op */
    struct sp_timeline_op *op; /* [n_ops] stage by stage, in the order of the programs */
    struct sp_timeline_dep *dep;
    struct sp_timeline_message *message; /* [n_messages] */
    int *order;                          /* [n_ops] ops by turn, set by sp_timeline_finish */
};

/* Makes room for so many stages, ops and dependencies, all zero or unknown. 0 or -ENOMEM. */
int sp_timeline_create(int stages, int ops, int deps, struct sp_timeline *t);
void sp_timeline_destroy(struct sp_timeline *t);

/* 0 or -ENOMEM. */
int sp_timeline_add_message(struct sp_timeline *t, const struct sp_timeline_message *m);

/* Call this once ops and messages are there: sets their order, and `arrived` of ops. 0; -EINVAL:
 * their turns are no order. */
int sp_timeline_finish(struct sp_timeline *t);
/* Call this before sp_timeline_finish if messages are measured. MPI does not report `sent`, so this
 * sets it to the time when the interfaces of both processes had finished earlier messages. 0 or
 * -ENOMEM. */
int sp_timeline_queue(struct sp_timeline *t);

/* Makes a record with the ops of a plan, their dependencies and their activations, without times
 * and messages. process, worker [stages] (NULL: each stage has its own); worker: the first stage of
 * those that share one. 0 or -ENOMEM. */
struct sp_timeline_terms {
    const struct sp_plan *plan;
    const struct sp_shape *shape; /* NULL: sizes are unknown */
    enum sp_recompute recompute;
    int every;
    const int *process, *worker;
    int processes; /* of the run; 0: only those of these stages */
};
int sp_timeline_of_plan(const struct sp_timeline_terms *terms, struct sp_timeline *t);
/* The same without their order, and with room for dependencies instead of them. */
int sp_timeline_of_ops(const struct sp_timeline_terms *terms, int deps, struct sp_timeline *t);

/* Makes the record of a plan's prediction, with the times of its list simulation. */
struct sp_prediction;
int sp_timeline_of_prediction(const struct sp_timeline_terms *terms, const struct sp_prediction *p,
                              struct sp_timeline *t);

/* True if a message is between processes. */
static inline bool sp_timeline_crosses(const struct sp_timeline *t,
                                       const struct sp_timeline_message *m)
{
    return m->kind != SP_ACTION_EVICT && m->kind != SP_ACTION_FETCH &&
           t->stage[m->from].rank != t->stage[m->to].rank;
}

static inline bool sp_timeline_is_move(const struct sp_timeline_message *m)
{
    return m->kind == SP_ACTION_EVICT || m->kind == SP_ACTION_FETCH;
}

/* Writes "F3.0", as in programs. */
char *sp_timeline_name(const struct sp_timeline *t, int op, char text[SP_OP_TEXT]);
/* "measured", ... */
const char *sp_timeline_source_name(enum sp_timeline_source source);

struct sp_step_report;

/* Makes the record of a step that was run, or simulated as a run, from the report of all stages. terms->process gives the rank of each stage;
 * terms->shape is required; workers come from the reports, not from terms->worker. 0; -ENOMEM;
 * -EINVAL: the report does not match the plan. */
int sp_timeline_of_report(const struct sp_timeline_terms *terms,
                          const struct sp_step_report *report, struct sp_timeline *t);

#endif
