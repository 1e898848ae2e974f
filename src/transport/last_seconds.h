/* Ends a process that cannot go on, even if its way out hangs on a pipe that nobody reads, a
 * disk or MPI. */
#ifndef SP_LAST_SECONDS_H
#define SP_LAST_SECONDS_H

#include <stdbool.h>

/* Ends the process with `status` 5 seconds after the first call. False: no thread could be
 * started for that. */
bool sp_last_seconds(int status);

#endif
