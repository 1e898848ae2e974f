/*
 * Memory of a GPU for buffers of many sizes that come and go all the time. cudaFree waits for all
 * work of the GPU; nothing here does. A returned buffer stays idle until a buffer of its size is
 * wanted. If idle buffers are too many, the oldest go to a memory pool of the driver, which maps
 * their pages anew to make buffers of any size. If the GPU has no memory left for a workspace, all
 * idle memory goes back to the GPU (sp_cuda_when_short). Plain C, no StarPU; any thread.
 */
#ifndef SP_CUDA_POOL_H
#define SP_CUDA_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_cuda_pool;
struct CUstream_st; /* CUDA's: cudaStream_t points to it */

/* True if the driver makes such pools on a device; it tries to make one. */
bool sp_cuda_pool_supported(int device);

/* Creates a pool on `device`. The devices peers[n] get access too, if they reach it. Kernels may
 * still use a buffer that is given back: `follow` lets a stream wait for its last `used`; NULL: they
 * have ended. 0, or -errno after one line on stderr. */
typedef void sp_cuda_follow_fn(int device, uint64_t used, struct CUstream_st *stream);
int sp_cuda_pool_create(int device, const int *peers, int n, sp_cuda_follow_fn *follow,
                        struct sp_cuda_pool **pool);
/* Destroys a pool to which all buffers were given back, and whose memory the GPU no longer uses. */
void sp_cuda_pool_destroy(struct sp_cuda_pool *pool);

/* Takes more than 0 bytes, aligned to 256; NULL: the GPU has no more. *used: its last use, 0: none.
 * Afterwards at most `most_idle_bytes` stay idle. */
void *sp_cuda_pool_take(struct sp_cuda_pool *pool, size_t bytes, size_t most_idle_bytes,
                        uint64_t *used);

/* Gives back a buffer that was taken with `bytes`, and its last use. */
void sp_cuda_pool_give(struct sp_cuda_pool *pool, void *memory, size_t bytes, uint64_t used);

#endif
