/* SimGrid's own start: its actors, in the place of threads. */
#ifndef SP_SIMULATE_ACTORS_H
#define SP_SIMULATE_ACTORS_H

/*
 * Runs `body` as SimGrid's first actor on the host MAIN of the platform that StarPU's environment names, and
 * comes back when all actors have ended. Once a process. What `body` returned; or -ENOSYS after one line.
 */
int sp_actors_run(int (*body)(void *arg), void *arg);

#endif
