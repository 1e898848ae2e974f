/*
 * Chooses the lengths of a sequence's slices. A slice takes longer the more tokens it has and the
 * further back in the sequence it is: its queries see all keys before them. Pure.
 */
#ifndef SP_SLICES_H
#define SP_SLICES_H

#include "model/shape.h"
#include "plan/machine/machine.h"
#include "policies/plan.h"

/* The cost of a slice of tokens first .. first+len-1 is token * len + pair * pairs, in any unit,
 * where pairs = len * first + len(len+1)/2 (query, key) pairs are visible. */
struct sp_slice_costs {
    double token, pair;
};

/* The floating-point operations of a layer's forward, for one sequence. */
struct sp_slice_costs sp_slice_flops(const struct sp_shape *sh);
double sp_slice_cost(const struct sp_slice_costs *c, int first, int len);

/* Cuts slices of equal time, to a token: the k-th boundary x solves token x + pair x(x+1)/2 = k/n
 * of the sequence's cost (SPPO section 4; Seq1F1B). The first slice is the longest. len[n], each at
 * least 1; n <= seq. */
void sp_slices_by_flops(const struct sp_slice_costs *c, int seq, int n, int *len);

/* The time of a slice of tokens first .. first+len-1, in any unit. */
struct sp_slice_time {
    double (*of)(const void *arg, int first, int len);
    const void *arg;
};

/*
 * Finds TeraPipe's lengths (Li et al. 2021, section 3.3): n slices that minimize m sum t + (p-1)
 * max t, by a dynamic program over boundaries for some bounds on max t, from the least one on. In
 * long sequences boundaries are several tokens apart. The result is never worse than the len[n]
 * that the caller passes in; for hundreds of slices it is just these. 0 or -ENOMEM.
 */
int sp_slices_by_program(const struct sp_slice_time *t, int seq, int n, int stages,
                         int micro_batches, int *len);

/* Checks, before sequences are cut, that the devices of the shape that share tokens or parameters
 * can share those of a plan and a model. `schedule` as the user wrote it. 0, or -EINVAL after one
 * line that begins with the command. */
int sp_plan_check_members(const char *command, const char *schedule, const struct sp_plan *plan,
                          const struct sp_model *model, const struct sp_shape *sh);

/*
 * Gives the slices of a plan the lengths of --partition-slices: "length" (equal), "flops", "dp"
 * (TeraPipe's, by the times of slices on the machine; NULL: by their operations) or a list of
 * tokens; NULL: the schedule's usual lengths. The list simulation then knows each slice's share of
 * its micro-batch. 0; or one line on stderr and -EINVAL, -ENOMEM.
 */
int sp_plan_cut(struct sp_plan *plan, const struct sp_shape *sh, const char *how,
                const struct sp_machine *machine);

/* Writes the tokens of a sequence's slices as "351 270 217 186"; of many only the first and the
 * last. */
void sp_slices_text(const struct sp_plan *plan, int seq, char *text, size_t n);

#endif
