/*
 * Says for every moment of a step whether a stage computed, or what it waited for. It needs only
 * the record of the step (trace/timeline/timeline.h).
 *
 * Time between two ops of a stage belongs to the first of these that still holds the next op back:
 *
 *   an op before it on another stage        until that op had written its output
 *   an interface, then the message          until its last message could be sent, and had arrived
 *   a core                                  until the worker had finished the ops of other stages
 *   the submission                          until its first task, or the receive of its message,
 *                                           was submitted
 *   evictions and fetches                   as the tasks of the op say
 *   the engine                              the rest
 *
 * Inside an op, time that is in no task is divided likewise. So the parts of a stage add up to the
 * step.
 */
#ifndef SP_WAITS_H
#define SP_WAITS_H

#include "trace/timeline/timeline.h"

enum sp_part_of_step {
    SP_STEP_COMPUTE,
    SP_STEP_UPSTREAM,   /* another op */
    SP_STEP_MESSAGE,    /* a message in transit */
    SP_STEP_INTERFACE,  /* a message queued behind another one */
    SP_STEP_OFFLOAD,    /* evictions and fetches */
    SP_STEP_SUBMISSION, /* a task, or a receive, that was not submitted yet */
    SP_STEP_CORE,       /* a core that others used */
    SP_STEP_ENGINE,     /* the runtime, before tasks that could start */
    SP_STEP_BARRIER,    /* the end of the step: the last op of all, the reports */
    SP_STEP_UPDATE,     /* norm and optimizer */
    SP_STEP_PARTS
};

/* An op, or two that overlap, as a stage runs them. */
struct sp_unit_of_step {
    int op, ops; /* the first op, and their number */
    double start, end;
    double compute, core;         /* tasks with a core, and without */
    double before[SP_STEP_PARTS]; /* why it did not start at the end of the stage's op before it */
    double late, held; /* parts of before[SUBMISSION], before[ENGINE]: of tasks, not messages */
    double inside[SP_STEP_PARTS]; /* time in no task */
    double delay
        [SP_STEP_PARTS]; /* delays of its input from other processes: MESSAGE, INTERFACE, SUBMISSION
                          * (of the receive), ENGINE (until it was given to the network) */
    int producer;        /* the op that it waited for longest; -1: none */
    bool apart;          /* it waits for ops of other processes, not only for a message */
    int message;         /* its last one from another process; -1: none */
};

struct sp_waits {
    const struct sp_timeline *t;
    int n;
    struct sp_unit_of_step *unit;   /* [n] stage by stage, in the order of their starts */
    int *of_op;                     /* [ops] the unit of an op */
    int *first_unit;                /* [stages + 1] */
    double (*stage)[SP_STEP_PARTS]; /* [stages] parts that add up to t->length */
};

/* 0 or -ENOMEM. */
int sp_waits_create(const struct sp_timeline *t, struct sp_waits *w);
void sp_waits_destroy(struct sp_waits *w);

/* The last unit of a stage that began before `start`; -1: none. */
int sp_waits_last_before(const struct sp_waits *w, int stage, double start);

/* "compute", "upstream", ...: short, for tables and JSON. */
const char *sp_part_of_step_name(enum sp_part_of_step part);
/* In a sentence: "a message on its way". */
const char *sp_part_of_step_words(enum sp_part_of_step part);

#endif
