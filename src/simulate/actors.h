/* SimGrid's own start, with its actors in place of threads. */
#ifndef SP_SIMULATE_ACTORS_H
#define SP_SIMULATE_ACTORS_H

/*
 * Runs `body` as SimGrid's first actor on the host MAIN of the platform that StarPU's environment
 * names. Returns the result of `body` when all actors have ended; or -ENOSYS after one line. A
 * process may call it once.
 */
int sp_actors_run(int (*body)(void *arg), void *arg);

#endif
