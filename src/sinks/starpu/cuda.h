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
#include <stdint.h>

/* After StarPU started: gives each CUDA worker its kernels, on its stream. 0, or -errno after one line on
 * stderr. */
int sp_cuda_start(void);
/* Before StarPU ends, when no task is left. */
void sp_cuda_stop(void);

/* GPUs that this process sees, of this machine; 0: none that can be used, and, where one is `wanted`,
 * one line on stderr says why. */
int sp_cuda_devices(bool wanted);

/* Whether a GPU runs what was built. 0, or -errno after one line on stderr. */
int sp_cuda_usable(int device);

/* What its maker calls a GPU. */
void sp_cuda_name(int device, char name[128]);

struct sp_backend;

/* Inside a task, whose args these are (struct sp_task_args): the kernels of its worker; and what it queued is all of it. */
const struct sp_backend *sp_cuda_kernels(const void *arg);
void sp_cuda_queued(const void *arg);

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
