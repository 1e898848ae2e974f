/*
 * List scheduling of a legal order. The order is replayed, and a stage that would wait runs a later
 * op of its list instead, as long as it never holds more activations than allowed. A replay forward
 * in time makes ops begin as early as they can, one in reverse as late as they can. For the
 * layerwise family with whole sequences. It is no user of the general player
 * (policies/simulation/player.h), whose lanes run their ops in a given order.
 */
#ifndef SP_LIST_SCHEDULE_H
#define SP_LIST_SCHEDULE_H

#include "starpipe/schedule.h"
#include <stdbool.h>

/* The ops that a stage may run before others of its list. */
enum sp_list_schedule_reach {
    SP_LIST_ANY,    /* any that is ready */
    SP_LIST_GAPS,   /* those that end before any of the others began in the order given */
    SP_LIST_STRICT, /* none */
};

/* A stage chooses among the ops that it could run by pass, then by place in the list. */
struct sp_list_rule {
    enum sp_list_schedule_reach reach;
    unsigned char rank[SP_R]; /* of F, B, W; the lowest runs first */
    bool wait;                /* wait rather than run a W that would delay the next F or B */
};

/* An order and its figures. */
struct sp_list_result {
    double makespan, spans; /* spans: last end - first start, summed over the stages */
    int peaks;              /* most activations alive, summed over the stages */
    int *peak;              /* [stages] */
    struct sp_op *ops;      /* stage after stage */
    double *start;          /* of each op; unknown if the order was not replayed */
};

struct sp_list_schedule; /* the layout, its costs, and the state of one replay */

/* For orders with the numbers of ops that programs[stages] hold. `lay` must outlive it. NULL: no
 * memory. */
struct sp_list_schedule *sp_list_schedule_create(const struct sp_layout *lay,
                                                 const struct sp_program *programs);
void sp_list_schedule_destroy(struct sp_list_schedule *r);

/* 0 or -ENOMEM. */
int sp_list_result_create(const struct sp_list_schedule *r, struct sp_list_result *result);
void sp_list_result_destroy(struct sp_list_result *result);
/* Copies a result including its arrays. */
void sp_list_result_copy(const struct sp_list_schedule *r, const struct sp_list_result *from,
                         struct sp_list_result *to);

/* Index of the first op of a stage in ops[]; for stage p, the number of all ops. */
int sp_list_schedule_first(const struct sp_list_schedule *r, int stage);

/*
 * Replays a legal order in which no stage holds more than limit[stage] activations of a chunk, and
 * writes the result to `out`. Returns false if it got stuck. That can only happen if two chunks
 * share a channel between two stages, where messages are first in, first out.
 */
bool sp_list_schedule_run(struct sp_list_schedule *r, const struct sp_list_rule *rule, bool reverse,
                          const int *limit, const struct sp_list_result *from,
                          struct sp_list_result *out);

/* Times closer than this are the same. */
double sp_list_schedule_epsilon(const struct sp_list_schedule *r);

#endif
