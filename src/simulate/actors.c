#define _GNU_SOURCE
#include "simulate/actors.h"
#include "config.h"
#ifdef HAVE_SIMGRID
#include "sp_error.h"
#include <dlfcn.h>
#include <errno.h>
#include <starpu.h>
#undef main

static int (*actor)(void *arg);
static void *actor_arg;

/*
 * StarPU-SimGrid expects to be the program: its main() reads the platform and calls starpu_main()
 * as an actor. Here only one command simulates, and only once it has made its platform, so it calls
 * that main() itself. StarPU's alternative, in starpu_init(), makes every actor a thread and is
 * some thirty times slower.
 */
__attribute__((visibility("default"))) int starpu_main(int argc, char **argv);

int starpu_main(int argc, char **argv)
{
    (void)argc, (void)argv;
    return actor(actor_arg);
}

int sp_actors_run(int (*body)(void *arg), void *arg)
{
    static char name[] = "starpipe-sim", log[] = "--log=root.threshold:warning";
    char *argv[] = {name, log, NULL};
    int (*start)(int, char **) = NULL;
    void *library = NULL;
    Dl_info info;

    if (dladdr((void *)(uintptr_t)starpu_init, &info) && info.dli_fname)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        *(void **)&start = dlsym(library, "main");
    if (!start)
        return sp_error(ENOSYS, "simulate: libstarpu has no main(): is it a shared library?");
    actor = body;
    actor_arg = arg;
    return start(2, argv);
}
#endif
