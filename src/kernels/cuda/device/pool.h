/*
 * Memory of a GPU for buffers of many sizes that come and go all the time. cudaFree waits for all that the GPU does;
 * nothing here does. What is given back waits for the next buffer of its size, up to a budget of bytes, used and
 * waiting. Beyond it the oldest go to a memory pool of the driver's, which makes others of them, of any size, by
 * mapping their pages anew. Plain C, no StarPU; any thread.
 */
#ifndef SP_CUDA_POOL_H
#define SP_CUDA_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct sp_cuda_pool;

/* Whether the driver has such pools. */
bool sp_cuda_pool_supported(int device);

/* On `device`, with a budget. 0, or -errno after one line on stderr. */
int sp_cuda_pool_create(int device, size_t budget_bytes, struct sp_cuda_pool **pool);

/* All was given back, and the GPU is done with it. */
void sp_cuda_pool_destroy(struct sp_cuda_pool *pool);

/* For any stream, aligned to 256; NULL: the GPU has no more. The budget is no limit to what is used. */
void *sp_cuda_pool_take(struct sp_cuda_pool *pool, size_t bytes);

/* What was taken with so many bytes, which nothing on the GPU uses any more. */
void sp_cuda_pool_give(struct sp_cuda_pool *pool, void *memory, size_t bytes);

#endif
