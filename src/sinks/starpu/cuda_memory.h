/* Memory of this process's GPUs, and pinned memory of the host. In a build without CUDA there is
 * none. */
#ifndef SP_CODELETS_CUDA_MEMORY_H
#define SP_CODELETS_CUDA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a GPU: in all, and free now. 0 or -errno. */
int sp_cuda_memory(int device, int64_t *total, int64_t *unused);

struct sp_shape;

/* The most bytes that the kernels of a GPU's worker take besides StarPU's buffers, for
 * micro-batches of shape `sh` in slices of at most `len` tokens. */
int64_t sp_cuda_kernels_bytes(int device, const struct sp_shape *sh, int len);

/* Measures bytes a second between pinned host memory and a GPU, with some tens of MiB. `both`, if
 * not NULL: in each direction while both are busy. 0 or -errno after one line. */
int sp_cuda_measure_copies(int device, double *out, double *back, double *both);

/*
 * A stream of copies between a GPU and the host, used by one thread. A copy from or to pinned
 * memory runs beside kernels; two may be begun at once, so that the bus never waits for the host.
 * They follow the last task that used the GPU's memory (sinks/starpu/cuda.h); later ones must wait
 * for them. A failure ends the process after one line.
 */
struct sp_cuda_copies;
struct sp_cuda_copies *sp_cuda_copies_open(int device);
void sp_cuda_copies_close(struct sp_cuda_copies *copies);
void sp_cuda_copy_begin(struct sp_cuda_copies *copies, uint64_t used, void *to, const void *from,
                        size_t bytes);
/* Waits, without a core, for the oldest copy that was begun and not waited for. */
void sp_cuda_copy_wait(struct sp_cuda_copies *copies);

/*
 * Pools of memory for StarPU's buffers on the GPUs of this process (kernels/cuda/device/pool.h), if
 * each of them has one. Start them after StarPU started, stop them after it has ended. Bytes that
 * StarPU counts on a GPU and idle bytes together exceed neither `budget_bytes` (0: no budget) nor
 * StarPU's limit. 0, or -errno after one line on stderr. sp_cuda_take and sp_cuda_give take a memory
 * node: see sinks/starpu/device_memory.h.
 */
bool sp_cuda_has_pool(int device);
int sp_cuda_pools_start(int64_t budget_bytes);
void sp_cuda_pools_stop(void);
void *sp_cuda_take(unsigned node, size_t bytes, uint64_t *used);
void sp_cuda_give(unsigned node, void *memory, size_t bytes, uint64_t used);

/* Pins memory for the copies of all GPUs; false: it is refused, and copies are slower.
 * sp_cuda_unpin may be called even then. */
bool sp_cuda_pin(void *memory, size_t bytes);
void sp_cuda_unpin(void *memory);

#endif
