/* The verifier: checks that a set of programs is a schedule of its family. */
#ifndef SP_VERIFY_H
#define SP_VERIFY_H

#include "policies/plan.h"

/*
 * Checks that every required op occurs exactly once and no other op does, the order is compatible
 * with dependencies, overlapped pairs are well-formed, the programs end with unbounded and with
 * first-in-first-out channels and with pairs as units, every message is taken, and no stage exceeds
 * layout.memory. 0; -EINVAL with the reason, op and stage in why[n]; -ENOMEM.
 */
int sp_verify(const struct sp_plan *plan, char *why, size_t n);

#endif
