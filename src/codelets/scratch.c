/* Scratch handles by size: StarPU keeps one buffer for each worker's memory behind each. */
#include "codelets/insert.h"
#include <stdlib.h>

static struct {
    size_t n;
    starpu_data_handle_t handle;
} shelf[64];
static int used;

starpu_data_handle_t sp_scratch_handle(size_t n)
{
    for (int i = 0; i < used; i++)
        if (shelf[i].n == n)
            return shelf[i].handle;
    STARPU_ASSERT_MSG(used < 64, "starpipe: more than 64 sizes of scratch buffers");
    shelf[used].n = n;
    sp_vector_register(&shelf[used].handle, n, sizeof(float), "scratch");
    return shelf[used++].handle;
}

void sp_scratch_release(void)
{
    for (int i = 0; i < used; i++)
        starpu_data_unregister_no_coherency(shelf[i].handle);
    used = 0;
}
