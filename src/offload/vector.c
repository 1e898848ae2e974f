#include "offload/vector.h"
#include "config.h"
#include "offload/simulated_memory.h"
#include "sp_error.h"
#include <errno.h>
#include <stdbool.h>

static const struct sp_vector_memory *memory_of_gpus;

/* StarPU's vectors, but for where they are allocated on a GPU. */
static struct starpu_data_interface_ops gpu_ops;

/* ---- on a GPU --------------------------------------------------------------------------- */

static bool on_gpu(unsigned node)
{
    return memory_of_gpus && starpu_node_get_kind(node) == STARPU_CUDA_RAM;
}

static size_t bytes_of(const struct starpu_vector_interface *v)
{
    return v->allocsize ? v->allocsize : 1; /* as StarPU has it */
}

/* Counted first: StarPU keeps to its limit, and makes room where it refuses. */
static starpu_ssize_t allocate(void *interface, unsigned node)
{
    struct starpu_vector_interface *v = interface;
    void *memory;

    if (!on_gpu(node))
        return starpu_interface_vector_ops.allocate_data_on_node(interface, node);
    if (starpu_memory_allocate(node, bytes_of(v), 0))
        return -ENOMEM;
    memory = memory_of_gpus->take(node, bytes_of(v));
    if (!memory) {
        starpu_memory_deallocate(node, bytes_of(v));
        return -ENOMEM;
    }
    v->ptr = v->dev_handle = (uintptr_t)memory;
    v->offset = 0;
    return (starpu_ssize_t)bytes_of(v);
}

static void release(void *interface, unsigned node)
{
    struct starpu_vector_interface *v = interface;

    if (!on_gpu(node)) {
        starpu_interface_vector_ops.free_data_on_node(interface, node);
        return;
    }
    memory_of_gpus->give(node, (void *)v->ptr, bytes_of(v));
    starpu_memory_deallocate(node, bytes_of(v));
    v->ptr = v->dev_handle = 0;
}

void sp_vector_take_from(const struct sp_vector_memory *memory)
{
    gpu_ops = starpu_interface_vector_ops;
    gpu_ops.allocate_data_on_node = allocate;
    gpu_ops.free_data_on_node = release;
    gpu_ops.dontcache = 1;
    memory_of_gpus = memory;
}

/* ---- registered --------------------------------------------------------------------------- */

/* How many of our elements make one of StarPU's. */
static size_t unit_of(size_t n)
{
    size_t unit = 1;

    while (n / unit >= UINT32_MAX)
        unit *= 2;
    return unit;
}

size_t sp_vector_elem(size_t n, size_t elem_bytes)
{
    return unit_of(n) * elem_bytes;
}

size_t sp_vector_length(size_t n)
{
    return (n + unit_of(n) - 1) / unit_of(n);
}

static void register_vector(starpu_data_handle_t *handle, int home, uintptr_t memory, size_t n,
                            size_t elem_bytes, const char *name)
{
    size_t length = sp_vector_length(n), elem = sp_vector_elem(n, elem_bytes);
    struct starpu_vector_interface v = {.id = STARPU_VECTOR_INTERFACE_ID,
                                        .ptr = memory,
                                        .dev_handle = memory,
                                        .nx = (uint32_t)length,
                                        .elemsize = elem,
                                        .allocsize = length * elem};

    if (memory_of_gpus)
        starpu_data_register(handle, home, &v, &gpu_ops);
    else
        starpu_vector_data_register(handle, home, memory, v.nx, elem);
    starpu_data_set_name(*handle, name);
}

void sp_vector_register(starpu_data_handle_t *handle, size_t n, size_t elem_bytes, const char *name)
{
    uintptr_t memory = 0;
    int home = -1;

#ifdef HAVE_SIMGRID
    home = STARPU_MAIN_RAM;
    memory = (uintptr_t)sp_simulated_memory(sp_vector_length(n) * sp_vector_elem(n, elem_bytes));
    SP_NEED(memory, "no addresses for %zu elements of %s", n, name);
#endif
    register_vector(handle, home, memory, n, elem_bytes, name);
}

void sp_vector_register_at(starpu_data_handle_t *handle, void *memory, size_t n, size_t elem_bytes,
                           const char *name)
{
    STARPU_ASSERT_MSG(n % unit_of(n) == 0, "starpipe: a vector of %zu elements in memory", n);
    register_vector(handle, STARPU_MAIN_RAM, (uintptr_t)memory, n, elem_bytes, name);
}
