/*
 * The CUDA kernels of this process's GPU workers. In a build without CUDA there are none, and starting
 * them is an error.
 *
 * A worker's kernels run on a stream of its own, in the order in which its tasks were taken. StarPU takes
 * a task for ended when what it finds on StarPU's stream has ended: as a rule that stream waits for ours
 * after each task. Where one worker runs everything and nothing but the tokens comes from elsewhere, the
 * tasks within an op need not be waited for: the tensors between them are touched on this stream alone,
 * whose order is dependency enough. Such a task (`in_stream`) ends for StarPU as soon as it is queued, so
 * that the next one is queued while the GPU is still at work, and the GPU never waits for the host; the
 * last task of the op, sp_op_close, is waited for, and with it all of them. Likewise the sums of squares
 * of a stage at the end of a step, up to the last. Where buffers are to take more than five sixths of what
 * they may have, or do, every task is waited for: StarPU may have to move some.
 */
#ifndef SP_CODELETS_CUDA_H
#define SP_CODELETS_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* After StarPU started: gives each CUDA worker its kernels, on its stream. 0, or -errno after one line on
 * stderr. */
int sp_cuda_start(void);
/* Before StarPU ends, when no task is left. */
void sp_cuda_stop(void);

/*
 * Pools of memory for StarPU's buffers on the GPUs of this process (kernels/cuda/device/pool.h), where all of these have
 * one. After StarPU started, and until it has ended. What StarPU counts on a GPU and what is idle take no more than
 * `budget_bytes` together, 0 or not, and no more than StarPU's limit. 0, or -errno after one line on stderr.
 * sp_cuda_take and sp_cuda_give are of the node's: see offload/vector.h.
 */
bool sp_cuda_has_pool(int device);
int sp_cuda_pools_start(int64_t budget_bytes);
void sp_cuda_pools_stop(void);
void *sp_cuda_take(unsigned node, size_t bytes);
void sp_cuda_give(unsigned node, void *memory, size_t bytes);

/* Pins memory for the copies of all GPUs; false: it is refused, and copies are slower. Unpinned it need not have been. */
bool sp_cuda_pin(void *memory, size_t bytes);
void sp_cuda_unpin(void *memory);

/* GPUs that this process sees, of this machine; 0: none that can be used, and, where one is `wanted`,
 * one line on stderr says why. */
int sp_cuda_devices(bool wanted);

/* Whether a GPU runs what was built. 0, or -errno after one line on stderr. */
int sp_cuda_usable(int device);

/* What its maker calls a GPU. */
void sp_cuda_name(int device, char name[128]);

/* Bytes of a GPU: in all, and free now. 0 or -errno. */
int sp_cuda_memory(int device, int64_t *total, int64_t *unused);

struct sp_shape;

/* What the kernels of a GPU's worker take beside StarPU's buffers, at most: of micro-batches of shape
 * `sh`, in slices of at most `len` tokens. */
int64_t sp_cuda_kernels_bytes(int device, const struct sp_shape *sh, int len);

/* Bytes a second between pinned host memory and a GPU, measured with some tens of MiB; `both`, if not NULL:
 * each way, when both ways are busy. 0 or -errno after one line. */
int sp_cuda_measure_copies(int device, double *out, double *back, double *both);

struct sp_backend;

/* Inside a task: waits for the kernels that it queued; those of a CPU have ended. */
void sp_cuda_wait(const struct sp_backend *k);

/* cuDNN's version, or why attention does without; for `starpipe info`. */
const char *sp_cuda_cudnn(void);
/* Whether FlashAttention-3 was built in; likewise. */
const char *sp_cuda_flash3(void);

/* Bytes that StarPU's buffers and the kernels' workspaces take on this process's GPUs, at the highest so
 * far; 0 without GPUs. */
int64_t sp_cuda_peak_bytes(void);

#endif
