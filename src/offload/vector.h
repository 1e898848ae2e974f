/*
 * Tensors as StarPU sees them: vectors of elements, on any number of memory nodes.
 */
#ifndef SP_VECTOR_H
#define SP_VECTOR_H

#include <starpu.h>

/* Registers a vector of n elements without a home or a value. StarPU counts elements in 32 bits:
 * beyond, the handle's elements are 2, 4, ... of ours, and its size is rounded up to them. */
void sp_vector_register(starpu_data_handle_t *handle, size_t n, size_t elem_bytes,
                        const char *name);

/* The same on memory of the caller's, where its value is; sizes beyond 32 bits must divide. */
void sp_vector_register_at(starpu_data_handle_t *handle, void *memory, size_t n, size_t elem_bytes,
                           const char *name);

/* What sp_vector_register makes of n elements: bytes of one of StarPU's, and how many. */
size_t sp_vector_elem(size_t n, size_t elem_bytes);
size_t sp_vector_length(size_t n);

/*
 * Where buffers on GPUs come from, in place of StarPU. StarPU keeps freed buffers by their exact size and takes others
 * from the device. Once its limit is reached it frees some, which on a GPU waits for all that computes, or sends away
 * what is in use. A run that moves tensors all the time wants what is freed to be free at once, for any size: StarPU
 * keeps nothing then, and counts what is in use alone.
 */
struct sp_vector_memory {
    void *(*take)(unsigned node, size_t bytes); /* NULL: there is none */
    void (*give)(unsigned node, void *memory, size_t bytes);
};

/* Of vectors registered from now on; NULL: as StarPU does. Before the first, or after the last. */
void sp_vector_take_from(const struct sp_vector_memory *memory);

#endif
