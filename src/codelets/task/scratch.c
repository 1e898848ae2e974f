/* Scratch handles by size: StarPU keeps one buffer for each worker's memory behind each. */
#include "codelets/insert.h"
#include <stdlib.h>

static struct {
    size_t bytes;
    starpu_data_handle_t handle;
} shelf[64];
static int used;

starpu_data_handle_t sp_scratch_handle(const struct sp_shape *sh, size_t n)
{
    size_t elem = sp_shape_elem(sh);

    for (int i = 0; i < used; i++)
        if (shelf[i].bytes == n * elem)
            return shelf[i].handle;
    STARPU_ASSERT_MSG(used < 64, "starpipe: more than 64 sizes of scratch buffers");
    shelf[used].bytes = n * elem;
    sp_vector_register(&shelf[used].handle, n, elem, "scratch");
    return shelf[used++].handle;
}

starpu_data_handle_t sp_scratch_rows(const struct sp_shape *sh, int width)
{
    return sp_scratch_handle(sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)width);
}

void sp_scratch_release(void)
{
    for (int i = 0; i < used; i++)
        starpu_data_unregister_no_coherency(shelf[i].handle);
    used = 0;
}
