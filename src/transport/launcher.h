/* Reads from the environment how many processes the launcher started. */
#ifndef SP_LAUNCHER_H
#define SP_LAUNCHER_H

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

#endif
