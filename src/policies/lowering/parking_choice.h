/* Which activations stages park on each other (parking.h). */
#ifndef SP_PARKING_CHOICE_H
#define SP_PARKING_CHOICE_H

#include "policies/lowering/parking.h"
#include "policies/plan.h"

/* Refuses plans whose activations cannot be parked: 0, or -EINVAL after one line. */
int sp_parking_check(const char *command, const struct sp_plan *plan, const struct sp_shape *sh);

/* Sets list[] to all activations of a stage that a peer could take, in program order; the list has
 * room for as many as the stage's program has ops. plan->order must be set. The number of them, or
 * -ENOMEM. */
int sp_parking_list(const struct sp_plan *plan, int stage, int peer, struct sp_parked *list);

/* An empty choice. NULL: no memory. */
struct sp_parking *sp_parking_new(const struct sp_plan *plan, enum sp_recompute recompute,
                                  int every);

/* Completes a choice whose stages have their units. */
void sp_parking_close(struct sp_parking *p);

/*
 * Chooses what stages park, so that the fullest ones keep as little as it takes to be no fuller than
 * the emptiest, which take it: the fullest stage with the emptiest one, and so on. Sets
 * plan->parking, NULL if no stage gains. 0 or -ENOMEM.
 */
int sp_parking_create(struct sp_plan *plan, const struct sp_shape *sh, enum sp_recompute recompute,
                      int every);

#endif
