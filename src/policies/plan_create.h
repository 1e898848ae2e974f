/* From the name of a schedule and a layout to a verified plan. */
#ifndef SP_PLAN_CREATE_H
#define SP_PLAN_CREATE_H

#include "policies/plan.h"

struct sp_order_book;

/*
 * Builds the plan of "NAME", "NAME:key=value,..." or "csv:FILE" (see policies/load/csv.h; sizes of `lay`
 * that are 0 are then the file's): finds the schedule, fills in defaults
 * (chunks 0: the schedule's), checks the layout, emits every program and verifies it. One line on
 * stderr and -EINVAL (-ENOMEM) otherwise. plan->layout.options points into the plan: do not copy
 * the structure. layout.costs is used during the call only.
 */
int sp_plan_create(const char *schedule, const struct sp_layout *lay, struct sp_plan *plan);

/* The same with orders that are in a book (order_book.h), or come into it. NULL: none. */
int sp_plan_create_by(struct sp_order_book *book, const char *schedule, const struct sp_layout *lay,
                      struct sp_plan *plan);

/*
 * The same schedule with other micro-batches, layers and slices being cut, and computed again, as those of `plan`, which may have
 * its programs from no file and no plug-in. 0, -ENOMEM, or -EINVAL, all without a word.
 */
int sp_plan_create_like(const struct sp_plan *plan, int micro_batches, struct sp_plan *like);

/* The line for a name, of so many letters, that no schedule has: with the nearest, and all there are. -EINVAL. */
int sp_schedule_refuse(const char *name, int length);

#endif
