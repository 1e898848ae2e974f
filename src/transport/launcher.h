/* The launcher of this process: how many processes it started, and whether it still runs. */
#ifndef SP_LAUNCHER_H
#define SP_LAUNCHER_H

#include <stdbool.h>
#include <sys/types.h>

struct sp_launcher {
    int size;             /* processes; 0: no launcher (a plain command line) */
    const char *variable; /* the variable that gives the size */
};

/* Returns the largest count: one launcher may have started another, for example one task a node. */
struct sp_launcher sp_launcher_find(void);

/* For a program that is alone although `l` started several, so that each would train by itself:
 * prints one line with the likely cause and returns -EINVAL. `mpi`: the MPI library; NULL: the
 * program was built without MPI. */
int sp_launcher_refuse(const struct sp_launcher *l, const char *mpi);

/* The process of the launcher (mpirun, orted, slurmstepd), which may go before this one. */
struct sp_parent {
    pid_t pid;                /* 0: none was found, and sp_parent_gone is false */
    unsigned long long start; /* of that process, in ticks since the machine's start */
};

/* Finds the nearest ancestor that is a launcher. If none has a launcher's name but the
 * environment says that one started this process, the parent counts as it. */
void sp_parent_find(struct sp_parent *p);
bool sp_parent_gone(const struct sp_parent *p);

#endif
