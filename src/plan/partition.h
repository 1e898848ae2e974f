/*
 * Chooses how many layers each global stage takes. The user gives the counts, 0 for a stage that
 * has the embedding or the head alone; or they are balanced, at least 1, so that the slowest stage
 * is as fast as possible. Counts are in the order of the layers, one a global stage;
 * sp_plan_partition gives them to a plan. Pure.
 */
#ifndef SP_PLAN_PARTITION_H
#define SP_PLAN_PARTITION_H

#include "policies/plan.h"
#include <stdbool.h>
#include <stdint.h>

/* Describes a list of counts on the command line, such as 3,2,2,1, for its check and for
 * messages. */
struct sp_counts {
    const char *option; /* "partition" */
    const char *unit;   /* "layers" */
    const char *whole;  /* "the model" has `total` of them */
    const char *parts;  /* "the schedule" has `n` "stages and chunks" to fill */
    int total, n;
    int least; /* of a count: 0 or 1 */
};

/* Reads counts[n], each at least `least`, with sum `total`. 0; or one line on stderr and -EINVAL,
 * counts untouched. */
int sp_counts_parse(const char *text, const struct sp_counts *want, int *counts);

/* True if this is a list of counts rather than a word. */
bool sp_partition_is_list(const char *text);

/* Parses "3,2,2,1": `globals` counts, each 0 or more, whose sum is `layers`. 0; or one line on
 * stderr and -EINVAL, counts untouched. */
int sp_partition_parse(const char *text, int layers, int globals, int *counts);

/*
 * The input of the balanced partition. Times are of one micro-batch, forward and backward, in
 * microseconds (any unit will do); a stage's time is the sum over its chunks. Stages and global
 * stages are those of the layout's placement (lay->map); in two pipes, the replicas of a global
 * stage have one count.
 */
struct sp_balance {
    const struct sp_layout *lay;
    int layers;
    const double *layer_us; /* [layers] each >= 0 */
    double first_us;        /* extra time on the first global stage: the embedding */
    double last_us;         /* extra time on the last one: the head */
    const double *slow;     /* [stages] factor by which all that takes longer there; NULL: 1 */

    /* Returns the bytes that a stage holds under counts[globals]; they may depend on the counts of
     * the stage's own chunks alone. NULL: no limit. */
    int64_t (*bytes)(void *arg, int stage, const int *counts);
    void *arg;
    int64_t limit_bytes; /* of a stage */
};

/*
 * Finds the balanced partition: the slowest stage is as fast as possible; among such partitions,
 * the sum of the squares of the stages' times is smallest; then that of the counts; then earlier
 * global stages have more layers. Deterministic: times are rounded to 2^-29 of the model's, and
 * compared as integers.
 *
 * With one chunk a stage and one pipe the result is exact, by a dynamic program over stages and
 * layers, O(p L^2). Otherwise the search improves the even partition, and the exact one of the
 * slowest global stage, by moving one layer at a time while the above gets smaller, and takes the
 * better result. It is never worse than the even partition if that fits the limit. With layers of
 * equal times in one pipe without a limit, the slowest stage is as fast as possible; with unequal
 * layers, two pipes or a limit that is not guaranteed.
 *
 * 0; or one line on stderr and -EINVAL (nothing found fits the limit: with the smallest that does,
 * or, with chunks or two pipes, the smallest found); counts untouched.
 */
int sp_partition_balanced(const struct sp_balance *b, int *counts);

/* Balances a plan of `layers` equal layers at their costs in one recompute mode. The caller sets
 * the bytes and `slow` in `limits`; the function sets the rest. */
struct sp_layer_costs;
int sp_partition_at_costs(const struct sp_plan *plan, int layers,
                          const struct sp_layer_costs *costs, enum sp_recompute mode,
                          const struct sp_balance *limits, int *counts);

/* Balances a plan without a limit, at the times of its layers on a machine; `devices`: of a
 * stage. */
struct sp_machine;
int sp_partition_on_machine(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_machine *machine, int devices, enum sp_recompute mode,
                            int *counts);

#endif
