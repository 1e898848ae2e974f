/* The option flow=ring|line of schedules whose weights can go around the ring or down the line of
 * workers. */
#ifndef SP_RING_FLOW_H
#define SP_RING_FLOW_H

#include "starpipe/schedule.h"

/* The layout that a schedule asks for, unless the user chooses the line. Pairs of chunks with an
 * odd number of workers, or with several chunks a worker, also go down the line, unless the user
 * asks for the ring. */
enum sp_ring_layout sp_flow_layout(const struct sp_layout *lay, enum sp_ring_layout says);
/* Refuses any other word, and several chunks a worker around the ring: 0, or -EINVAL with the
 * reason. */
int sp_flow_check(const struct sp_layout *lay, enum sp_ring_layout says, char *why, size_t n);

#endif
