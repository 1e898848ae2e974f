/*
 * Preloaded: runs the shell command $EXCHANGE once, when the run has checked its files and StarPU is about
 * to start.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

struct starpu_conf;

int starpu_conf_init(struct starpu_conf *conf)
{
    int (*real)(struct starpu_conf *);
    static int calls;

    *(void **)&real = dlsym(RTLD_NEXT, "starpu_conf_init");
    unsetenv("LD_PRELOAD");
    if (!calls++ && system(getenv("EXCHANGE")))
        abort();
    return real(conf);
}
