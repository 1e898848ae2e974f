/* The end of a process that cannot go on, whatever hangs on its way out: a pipe that nobody reads, a disk, MPI. */
#ifndef SP_LAST_SECONDS_H
#define SP_LAST_SECONDS_H

#include <stdbool.h>

/* The process has 5 seconds left from the first call on, and ends with `status` then. False: no thread for that. */
bool sp_last_seconds(int status);

#endif
