/* The option flow=ring|line of schedules whose weights can go around the ring or down the line of workers. */
#ifndef SP_RING_FLOW_H
#define SP_RING_FLOW_H

#include "starpipe/schedule.h"

/* What a schedule says of its layout, unless the user wants no way around; nor is there one for pairs of chunks with an
 * odd number of workers or several chunks a worker, unless the user asks for it. */
enum sp_ring_layout sp_flow_layout(const struct sp_layout *lay, enum sp_ring_layout says);
/* Refuses another word, and several chunks a worker that would go around: 0, or -EINVAL with the reason. */
int sp_flow_check(const struct sp_layout *lay, enum sp_ring_layout says, char *why, size_t n);

#endif
