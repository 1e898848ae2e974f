/* What makes a set of programs a schedule of its family. */
#ifndef SP_VERIFY_H
#define SP_VERIFY_H

#include "policies/plan.h"

/*
 * Every required op exactly once, nothing else, order compatible with dependencies, overlapped
 * pairs well-formed, progress with unbounded and with first-in-first-out channels and with pairs
 * as units, every message taken, and no stage above layout.memory. -EINVAL with the reason, op
 * and stage in why[n]; -ENOMEM.
 */
int sp_verify(const struct sp_plan *plan, char *why, size_t n);

#endif
