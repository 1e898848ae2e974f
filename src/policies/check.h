/* Checks that several schedules share. */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "starpipe/schedule.h"

/* One chunk per stage and whole sequences, or says so in why[n]: 0 or -EINVAL. */
int sp_check_whole(const struct sp_layout *lay, char *why, size_t n);

/* One chunk per stage, any slices. */
int sp_check_sliced(const struct sp_layout *lay, char *why, size_t n);

#endif
