/*
 * Memory of a GPU for buffers of many sizes that come and go all the time. cudaFree waits for all that the GPU does;
 * nothing here does. What is given back waits, idle, for the next buffer of its size. Where there is too much of it the
 * oldest go to a memory pool of the driver's, which makes others of them, of any size, by mapping their pages anew.
 * Where the GPU has no memory left for a workspace, all of it goes back to the GPU (sp_cuda_when_short). Plain C, no
 * StarPU; any thread.
 */
#ifndef SP_CUDA_POOL_H
#define SP_CUDA_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct sp_cuda_pool;

/* Whether the driver makes such pools on a device: one is tried. */
bool sp_cuda_pool_supported(int device);

/* On `device`, with access for peers[n], devices too, as far as they reach it. 0, or -errno after one line on stderr. */
int sp_cuda_pool_create(int device, const int *peers, int n, struct sp_cuda_pool **pool);

/* All was given back, and the GPU is done with it. */
void sp_cuda_pool_destroy(struct sp_cuda_pool *pool);

/* More than 0 bytes for any stream, aligned to 256; NULL: the GPU has no more. Beside them no more than so many bytes
 * stay idle. */
void *sp_cuda_pool_take(struct sp_cuda_pool *pool, size_t bytes, size_t most_idle_bytes);

/* What was taken with so many bytes, which nothing on the GPU uses any more. */
void sp_cuda_pool_give(struct sp_cuda_pool *pool, void *memory, size_t bytes);

#endif
