/* Shared by the families in which worker i mod P keeps micro-batch i, and weights come to the
 * worker. */
#ifndef SP_WORKERS_H
#define SP_WORKERS_H

#include "policies/plan.h"

/* Accepts only whole sequences: 0, or -EINVAL with the reason. */
int sp_worker_check(const struct sp_layout *lay, char *why, size_t n);

/* For struct sp_family. */
bool sp_worker_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                       size_t n);

#endif
