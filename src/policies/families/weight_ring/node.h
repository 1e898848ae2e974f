/* The option node=N of schedules whose workers are in the same turn where they share a node. */
#ifndef SP_RING_NODE_H
#define SP_RING_NODE_H

#include "starpipe/schedule.h"

/* N, or `otherwise`. */
int sp_node_option(const struct sp_layout *lay, int otherwise);
/* Refuses what is no number of workers: 0, or -EINVAL with the reason. */
int sp_node_check(const struct sp_layout *lay, char *why, size_t n);

#endif
