/*
 * How many layers each global stage takes: given by the user, 0 for one that has the embedding or the
 * head alone, or such that the slowest stage is as fast as can be, at least 1. Counts are in the order of
 * the layers, one a global stage; sp_plan_partition gives them to a plan. Pure.
 */
#ifndef SP_PLAN_PARTITION_H
#define SP_PLAN_PARTITION_H

#include "policies/plan.h"
#include <stdbool.h>
#include <stdint.h>

/* True if this is a list of counts rather than a word. */
bool sp_partition_is_list(const char *text);

/* Parses "3,2,2,1": `globals` counts, each 0 or more, whose sum is `layers`. 0; or one line on stderr and -EINVAL,
 * counts untouched. */
int sp_partition_parse(const char *text, int layers, int globals, int *counts);

/*
 * What is to be balanced. Times are of one micro-batch, forward and backward, in microseconds (any
 * unit will do); a stage's is the sum over its chunks. Stage and global stage are those of the
 * layout's placement (lay->map); in two pipes, the replicas of a global stage have one count.
 */
struct sp_balance {
    const struct sp_layout *lay;
    int layers;
    const double *layer_us; /* [layers] each >= 0 */
    double first_us;        /* besides, on the first global stage: the embedding */
    double last_us;         /* besides, on the last: the head */
    const double *slow;     /* [stages] how many times as long all that takes there; NULL: 1 */

    /* Bytes that a stage holds under counts[globals], which may depend on the counts of its own
     * chunks alone. NULL: no limit. */
    int64_t (*bytes)(void *arg, int stage, const int *counts);
    void *arg;
    int64_t limit_bytes; /* of a stage */
};

/*
 * The balanced partition: the time of the slowest stage is smallest; among those, the sum of the
 * squares of the stages' times; then that of the counts; then the one with more layers on earlier
 * global stages. Deterministic: times are rounded to 2^-29 of the model's, and compared as
 * integers.
 *
 * One chunk a stage and one pipe: exact, by a dynamic program over stages and layers, O(p L^2).
 * Otherwise the even partition, and the exact one of the slowest global stage, are improved by
 * moving one layer at a time while the above gets smaller, and the better one is taken: never
 * worse than even where even fits the limit, and for layers of equal times in one pipe without a
 * limit the slowest stage is as fast as can be; with unequal layers, two pipes or a limit that is
 * not guaranteed.
 *
 * 0; or one line on stderr and -EINVAL (nothing found fits the limit: with the smallest that
 * does, or, with chunks or two pipes, the smallest found), -ENOMEM; counts untouched.
 */
int sp_partition_balanced(const struct sp_balance *b, int *counts);

/* The same of a plan of so many layers that are all alike, at their costs in such a mode: `limits` has the bytes and what
 * is slow, the rest of it is set. */
struct sp_layer_costs;
int sp_partition_at_costs(const struct sp_plan *plan, int layers,
                          const struct sp_layer_costs *costs, enum sp_recompute mode,
                          const struct sp_balance *limits, int *counts);

/* The same at what layers take on a machine, of whose devices a stage has so many, with no limit. */
struct sp_machine;
int sp_partition_on_machine(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_machine *machine, int devices, enum sp_recompute mode,
                            int *counts);

/* Times of the stages, us[stages], under counts. */
void sp_partition_times(const struct sp_balance *b, const int *counts, double *us);

#endif
