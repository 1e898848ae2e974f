/* From the name of a schedule and a layout to a verified plan. */
#ifndef SP_PLAN_CREATE_H
#define SP_PLAN_CREATE_H

#include "policies/plan.h"

struct sp_order_book;

/*
 * Builds the plan of "NAME", "NAME:key=value,..." or "csv:FILE" (see policies/load/csv.h; sizes of
 * `lay` that are 0 are then the file's). Finds the schedule, fills in defaults (chunks 0: the
 * schedule's), checks the layout, emits every program and verifies it. 0; or -EINVAL or -ENOMEM
 * after one line on stderr. plan->layout.options points into the plan: do not copy the structure.
 * layout.costs is used during the call only.
 */
int sp_plan_create(const char *schedule, const struct sp_layout *lay, struct sp_plan *plan);

/* The same, with orders taken from a book and added to it (order_book.h). NULL: no book. */
int sp_plan_create_by(struct sp_order_book *book, const char *schedule, const struct sp_layout *lay,
                      struct sp_plan *plan);

/*
 * Builds a plan of the same schedule with another number of micro-batches. Layers, slices and
 * recompute are as in `plan`, whose programs must not come from a file or a plug-in. 0, -ENOMEM or
 * -EINVAL; prints nothing.
 */
int sp_plan_create_like(const struct sp_plan *plan, int micro_batches, struct sp_plan *like);

/* Refuses a name of `length` letters that no schedule has: one line with the nearest name and all
 * names. -EINVAL. */
int sp_schedule_refuse(const char *name, int length);

#endif
