/*
 * The CUDA kernels of this process's GPU workers. In a build without CUDA there are none, and starting
 * them is an error.
 *
 * A worker's kernels run on a stream of its own, in the order in which its tasks were taken. StarPU
 * considers a task ended when the work on StarPU's stream has ended; usually that stream waits for
 * ours after each task. If one worker runs everything and only the tokens come from elsewhere,
 * StarPU need not wait for the tasks within an op: only this stream touches the tensors between
 * them, and its order satisfies the dependencies. Such a task (`in_stream`) ends for StarPU as soon
 * as it is queued. The next one is then queued while the GPU is still at work, and the GPU never
 * waits for the host. StarPU waits for the last task of the op, sp_op_close, and thereby for all of
 * them. The sums of squares of a stage at the end of a step work likewise, up to the last.
 *
 * Copies from and to the GPU, and memory that changes hands, follow the kernels queued before: a
 * tensor that leaves may still be computed for all that StarPU knows, and the buffer of one that
 * comes back may still be read.
 */
#ifndef SP_CODELETS_CUDA_H
#define SP_CODELETS_CUDA_H

#include <stdbool.h>
#include <stdint.h>

/* Call after StarPU started: gives each CUDA worker its kernels, on its stream. 0, or -errno after
 * one line on stderr. */
int sp_cuda_start(void);
/* Call before StarPU ends, when no task is left. */
void sp_cuda_stop(void);

/* The number of GPUs of this machine that this process sees; 0: none is usable, and if one is
 * `wanted`, one line on stderr says why. */
int sp_cuda_devices(bool wanted);

/* Checks that a GPU runs the kernels of this build. 0, or -errno after one line on stderr. */
int sp_cuda_usable(int device);

/* The vendor's name of a GPU. */
void sp_cuda_name(int device, char name[128]);

struct sp_backend;

/* Called inside a task with its args (struct sp_task_args): returns the kernels of its worker; and
 * says that the task has queued all its kernels. */
const struct sp_backend *sp_cuda_kernels(const void *arg);
void sp_cuda_queued(const void *arg);

struct starpu_data_copy_methods;

/* Sets the functions by which StarPU copies vectors between the host and a GPU: on its streams, after
 * the kernels that are queued when it asks. */
void sp_cuda_set_copies(struct starpu_data_copy_methods *methods);

/*
 * Marks the place behind all kernels queued so far on the GPU of a memory node; lets a stream wait
 * for it; and gives the mark back, after that. NULL, in which case nothing waits: there is no GPU.
 */
struct sp_cuda_mark;
struct CUstream_st; /* CUDA's: cudaStream_t points to it */
struct sp_cuda_mark *sp_cuda_mark(unsigned node);
void sp_cuda_pass_mark(const struct sp_cuda_mark *mark, struct CUstream_st *stream);
void sp_cuda_unmark(struct sp_cuda_mark *mark);
/* The stream of the kernels of a memory node's GPU; NULL: it has no worker. */
struct CUstream_st *sp_cuda_stream_of(unsigned node);

/* Called inside a task: waits for the kernels that it queued. CPU kernels have already ended. */
void sp_cuda_wait(const struct sp_backend *k);

/* cuDNN's version, or why attention does not use it; for `starpipe info`. */
const char *sp_cuda_cudnn(void);
/* A text that says if FlashAttention-3 was built in; for `starpipe info`. */
const char *sp_cuda_flash3(void);

/* The most bytes so far that StarPU's buffers and the kernels' workspaces took on this process's
 * GPUs; 0 without GPUs. */
int64_t sp_cuda_peak_bytes(void);

#endif
