/*
 * A book of orders already found, by schedule and sizes. With many stages, an order that is found
 * as a whole (struct sp_schedule_def: emit_all) takes long to find, and it does not depend on the
 * devices of a stage. A caller that makes many plans keeps a book. Threads may share one. Pure.
 */
#ifndef SP_ORDER_BOOK_H
#define SP_ORDER_BOOK_H

#include "policies/plan.h"

struct sp_order_book;

struct sp_order_book *sp_order_book_create(void); /* NULL: no memory */
void sp_order_book_destroy(struct sp_order_book *book);

/* True if the order of a plan without programs depends on its schedule and sizes alone, and takes long to find. */
bool sp_order_book_takes(const struct sp_plan *plan);

/* Gives a plan a copy of the programs stored for its schedule and sizes. 1; 0: there are none; or
 * -ENOMEM. */
int sp_order_book_find(struct sp_order_book *book, struct sp_plan *plan);

/* Stores a copy of the programs of a plan as they were emitted, unless there is no memory for
 * it. */
void sp_order_book_add(struct sp_order_book *book, const struct sp_plan *plan);

#endif
