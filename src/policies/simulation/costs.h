/* Costs of ops and messages. */
#ifndef SP_COSTS_H
#define SP_COSTS_H

#include "policies/plan.h"

/* Cost of one op under `costs`. */
double sp_op_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                  const struct sp_op *op);

/* The part of that cost that an op recomputes before it needs the tensors of other stages. The op
 * may begin that much before they arrive. */
double sp_op_again(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op);

/* Cost of the message of an op that another stage waits for: comm, or the op's share of it. */
double sp_message_cost(const struct sp_plan *plan, const struct sp_costs *costs,
                       const struct sp_dep *dep);

/* The time at which such a message is sent. `place`: index of the op in the program of its
 * stage. */
static inline double sp_message_sent(const struct sp_dep *dep, double *const *start,
                                     double *const *end, int place)
{
    return dep->beside ? start[dep->stage][place] : end[dep->stage][place];
}

/* f = b = w = 1; pre : attn : post as 1 : 3 : 2, a backward twice a forward; comm 0. */
extern const struct sp_costs sp_costs_unit;

/*
 * Parses "f=1,b=1,w=1,comm=0,wire=0", or, if the layers are known, costs per layer
 * "pre=1,attn=3,post=2,backward=2,comm=0,wire=0"; these are the defaults. A backward is `backward`
 * forwards, half of it weight gradient except in attention, which has no weights. Families whose
 * ops are parts of layers require the second form. 0, or -EINVAL after one line on stderr.
 */
int sp_costs_parse(const char *text, const struct sp_plan *plan, struct sp_costs *costs);

/* Returns true if the costs of the parts of a layer are known. */
bool sp_costs_know_parts(const struct sp_costs *costs);

/* Makes backwards recompute forwards: everything, or all but attention, which requires the costs of
 * parts. */
void sp_costs_add_recompute(const struct sp_plan *plan, bool attention, struct sp_costs *costs);

#endif
