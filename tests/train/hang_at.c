/* Preloaded: the process of rank HANG_RANK, or the only one, gets no further than the call of function HANG_AT: it
 * stops there as by SIGSTOP, or, with HANG_SPINS, goes round for ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hang(const char *where)
{
    const char *at = getenv("HANG_AT"), *rank = getenv("HANG_RANK");
    const char *mine = getenv("OMPI_COMM_WORLD_RANK");

    if (!at || strcmp(at, where) || (mine && rank && strcmp(mine, rank)))
        return;
    while (getenv("HANG_SPINS"))
        continue;
    kill(getpid(), SIGSTOP);
}

#define HANGS(result, name, parameters, arguments)                                                 \
    result name parameters;                                                                        \
    result name parameters                                                                         \
    {                                                                                              \
        static result(*real) parameters;                                                           \
                                                                                                   \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        hang(#name);                                                                               \
        return real arguments;                                                                     \
    }

HANGS(int, MPI_Init_thread, (int *c, char ***v, int w, int *g), (c, v, w, g))
HANGS(int, MPI_Finalize, (void), ())
HANGS(int, starpu_init, (void *conf), (conf))
HANGS(int, starpu_task_wait_for_all, (void), ())
HANGS(int, renameat, (int at, const char *from, int there, const char *to), (at, from, there, to))
HANGS(int, renameat2, (int at, const char *from, int there, const char *to, unsigned flags),
      (at, from, there, to, flags))
