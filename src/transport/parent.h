/* Finds the launcher of this process (mpirun, orted, slurmstepd), and tells whether it still
 * runs. */
#ifndef SP_PARENT_H
#define SP_PARENT_H

#include <stdbool.h>
#include <sys/types.h>

struct sp_parent {
    pid_t pid;                /* 0: none was found, and sp_parent_gone is false */
    unsigned long long start; /* of that process, in ticks since the machine's start */
};

/* Finds the nearest ancestor that is a launcher. If none has a launcher's name but the
 * environment says that one started this process, the parent counts as it. */
void sp_parent_find(struct sp_parent *p);
bool sp_parent_gone(const struct sp_parent *p);

#endif
