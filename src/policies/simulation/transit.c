#include "policies/simulation/transit.h"
#include "policies/simulation/merge.h"
#include <errno.h>
#include <stdlib.h>

/* A tensor that crosses between stages, listed by the place of its producer in the order. */
struct message {
    int src, dst;
    int next; /* of the same producer, -1: last */
};

struct count {
    const struct sp_plan *plan;
    const struct sp_placed *order;
    int n, n_messages;
    int *position; /* [ids] in the order */
    int *first;    /* [n] first message of the op at this place, -1: none */
    struct message *messages;
    int *now; /* [stages] */
};

static const struct sp_op *op_at(const struct count *c, int i)
{
    return &c->plan->programs[c->order[i].stage].ops[c->order[i].index];
}

/* Calls fn with every message that the op at place i takes. */
static void each_taken(struct count *c, int i,
                       void (*fn)(struct count *c, int src, int dst, int from))
{
    const struct sp_plan *plan = c->plan;
    struct sp_dep deps[SP_MAX_DEPS];
    int dst = c->order[i].stage, n = plan->family->deps(&plan->layout, dst, op_at(c, i), deps);

    for (int d = 0; d < n; d++)
        if (deps[d].stage != dst)
            fn(c, deps[d].stage, dst,
               c->position[plan->family->id(&plan->layout, deps[d].stage, &deps[d].op)]);
}

static void tally(struct count *c, int src, int dst, int from)
{
    (void)src, (void)dst, (void)from;
    c->n_messages++;
}

static void list(struct count *c, int src, int dst, int from)
{
    c->messages[c->n_messages] = (struct message){src, dst, c->first[from]};
    c->first[from] = c->n_messages++;
}

static void arrive(struct count *c, int src, int dst, int from)
{
    (void)from;
    c->now[src]--;
    c->now[dst]--;
}

static void depart(struct count *c, int stage)
{
    if (++c->now[stage] > c->plan->transit[stage])
        c->plan->transit[stage] = c->now[stage];
}

static int sweep(struct count *c)
{
    for (int i = 0; i < c->n; i++) {
        c->position[c->plan->family->id(&c->plan->layout, c->order[i].stage, op_at(c, i))] = i;
        c->first[i] = -1;
    }
    for (int i = 0; i < c->n; i++)
        each_taken(c, i, tally);
    c->messages = calloc((size_t)c->n_messages + 1, sizeof *c->messages);
    if (!c->messages)
        return -ENOMEM;
    c->n_messages = 0;
    for (int i = 0; i < c->n; i++)
        each_taken(c, i, list);
    for (int i = 0; i < c->n; i++) {
        for (int m = c->first[i]; m >= 0; m = c->messages[m].next) {
            depart(c, c->messages[m].src);
            depart(c, c->messages[m].dst);
        }
        each_taken(c, i, arrive);
    }
    return 0;
}

int sp_plan_count_transit(struct sp_plan *plan)
{
    struct count c = {.plan = plan};
    struct sp_placed *order = sp_plan_order(plan, &c.n);
    size_t n = (size_t)(c.n > 0 ? c.n : 1), stages = (size_t)plan->layout.stages;
    int err = -ENOMEM;

    if (!order)
        return err;
    c.order = order;
    free(plan->transit);
    plan->transit = calloc(stages, sizeof *plan->transit);
    c.position = calloc((size_t)plan->family->ids(&plan->layout), sizeof *c.position);
    c.first = calloc(n, sizeof *c.first);
    c.now = calloc(stages, sizeof *c.now);
    if (plan->transit && c.position && c.first && c.now)
        err = sweep(&c);
    free(order);
    free(c.position);
    free(c.first);
    free(c.messages);
    free(c.now);
    return err;
}
