/* A buffer that cannot be had ends the run with a message: StarPU would ask for it for ever. */
#include "engine/support.h"
#include "offload/main_memory.h"
#include <sys/resource.h>

static void touch(void *buffers[], void *arg)
{
    (void)buffers, (void)arg;
}

static struct starpu_codelet codelet = {.cpu_funcs = {touch}, .nbuffers = 1, .modes = {STARPU_W}};

/* A task that writes a vector of so many MiB, under a limit of the address space. */
static void run(void *arg)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)4 << 30, .rlim_max = (rlim_t)4 << 30};
    starpu_data_handle_t handle;

    sp_main_memory_start();
    start_starpu(1, &sp_order_strict);
    sp_main_memory_uncount(false);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    starpu_vector_data_register(&handle, -1, 0, (uint32_t)(*(int *)arg << 10), 1024);
    assert_int_equal(starpu_task_insert(&codelet, STARPU_W, handle, STARPU_EXECUTE_ON_WORKER, 0, 0),
                     0);
    starpu_task_wait_for_all();
    starpu_data_unregister_no_coherency(handle);
    starpu_shutdown();
    sp_main_memory_stop();
}

TEST(too_large)
{
    struct capture said;
    int mib = 8 << 10, status = in_child(run, &mib, &said);

    printf("    %s", said.text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_non_null(strstr(said.text, "starpipe: no memory for a buffer of 8192.0 MiB: ulimit -v"));
}

TEST(fits)
{
    struct capture said;
    int mib = 16;

    assert_int_equal(in_child(run, &mib, &said), 0);
}
