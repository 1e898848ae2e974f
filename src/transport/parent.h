/* The launcher of this process (mpirun, orted, slurmstepd), and whether it is still there. */
#ifndef SP_PARENT_H
#define SP_PARENT_H

#include <stdbool.h>
#include <sys/types.h>

struct sp_parent {
    pid_t pid;                /* 0: none was found: it is never gone */
    unsigned long long start; /* of that process, in ticks since the machine's start */
};

/* The nearest ancestor that is a launcher; the parent, where a launcher said that it started this one and
 * none has such a name. */
void sp_parent_find(struct sp_parent *p);
bool sp_parent_gone(const struct sp_parent *p);

#endif
