#ifndef SP_DEVICE_MEMORY_H
#define SP_DEVICE_MEMORY_H

#include <stddef.h>

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

/* Of tensors made from now on; NULL: as StarPU does. Before the first, or after the last. */
void sp_vector_take_from(const struct sp_vector_memory *memory);

#endif
