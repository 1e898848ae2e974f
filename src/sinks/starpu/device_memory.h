#ifndef SP_DEVICE_MEMORY_H
#define SP_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * An allocator of buffers on GPUs that replaces StarPU's. StarPU keeps freed buffers by their exact
 * size, and takes others from the device. At its limit it frees some, which on a GPU waits for all
 * running kernels, or it evicts buffers in use. A run that moves tensors all the time needs freed
 * memory at once, for any size. With this allocator StarPU keeps nothing, and counts only the
 * buffers in use.
 */
struct sp_vector_memory {
    /* NULL: there is none. `used`: the last task that used the memory (sinks/starpu/cuda.h). */
    void *(*take)(unsigned node, size_t bytes, uint64_t *used);
    void (*give)(unsigned node, void *memory, size_t bytes, uint64_t used);
};

/* Says if there are GPUs, on which copies follow tasks, and sets the allocator
 * of tensors on them; NULL: StarPU's. Call it before the first tensor is made, or after the last is
 * gone. */
void sp_vectors_on_gpus(bool gpus, const struct sp_vector_memory *memory);

#endif
