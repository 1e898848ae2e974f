/* How many processes the launcher started, from its environment. */
#ifndef SP_LAUNCHER_H
#define SP_LAUNCHER_H

struct sp_launcher {
    int size;             /* processes; 0: no launcher (a plain command line) */
    const char *variable; /* that says so */
};

/* One may have started another, for example one task a node: the most that any of them says. */
struct sp_launcher sp_launcher_find(void);

/* The likely cause where a program that knows MPI, or was built without (`mpi` NULL), is alone among several that `l`
 * started: each would train by itself. Prints one line and returns -EINVAL. */
int sp_launcher_refuse(const struct sp_launcher *l, const char *mpi);

#endif
