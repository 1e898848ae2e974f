/* The option node=N of schedules in which the workers of a node are in the same turn. */
#ifndef SP_RING_NODE_H
#define SP_RING_NODE_H

#include "starpipe/schedule.h"

/* N, or `otherwise`. */
int sp_node_option(const struct sp_layout *lay, int otherwise);
/* Refuses an N that is no divisor of the number of workers: 0, or -EINVAL with the reason. */
int sp_node_check(const struct sp_layout *lay, char *why, size_t n);

#endif
