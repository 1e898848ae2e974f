/* Which activations stages park on each other (parking.h). */
#ifndef SP_PARKING_CHOICE_H
#define SP_PARKING_CHOICE_H

#include "policies/lowering/parking.h"
#include "policies/plan.h"

/* Refuses plans whose activations cannot be parked: 0, or -EINVAL after one line. */
int sp_parking_check(const char *command, const struct sp_plan *plan, const struct sp_shape *sh);

/*
 * Chooses what stages park, so that the fullest ones keep as little as it takes to be no fuller than
 * the emptiest, which take it: the fullest stage with the emptiest one, and so on. Sets
 * plan->parking, NULL if no stage gains. 0 or -ENOMEM.
 */
int sp_parking_create(struct sp_plan *plan, const struct sp_shape *sh, enum sp_recompute recompute,
                      int every);

#endif
