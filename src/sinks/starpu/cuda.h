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
 * A tensor that leaves may then still be computed for all that StarPU knows, and the buffer of one
 * that comes back may still be read. So tasks of a worker are counted, a buffer on a GPU has the
 * number of the last one that used it, also after it is freed, and a copy follows that one.
 */
#ifndef SP_CODELETS_CUDA_H
#define SP_CODELETS_CUDA_H

#include <starpu.h>
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
/* True if its tensor cores multiply fp8. */
bool sp_cuda_multiplies_fp8(int device);

/* The vendor's name of a GPU. */
void sp_cuda_name(int device, char name[128]);

struct sp_backend;

/* Called inside a task with its args (struct sp_task_args): returns the kernels of its worker; and
 * says that the task has queued all its kernels, on these buffers of StarPU. */
const struct sp_backend *sp_cuda_kernels(const void *arg);
void sp_cuda_queued(const void *arg, void *buffers[], int n);

/* The data interface of tensors of a run with GPUs, which sp_vectors_on_gpus (device_memory.h) sets:
 * StarPU's vector, and the last task that used its buffer on this node; 0: none. */
struct sp_gpu_vector {
    struct starpu_vector_interface vector;
    uint64_t used;
};

/* Sets the functions by which StarPU copies such tensors between the host and a GPU, on its own
 * streams. */
void sp_cuda_set_copies(struct starpu_data_copy_methods *methods);

/* Lets a stream follow a task of the worker of a GPU; 0: it need not, nor after sp_cuda_stop. */
struct CUstream_st; /* CUDA's: cudaStream_t points to it */
void sp_cuda_follow(int device, uint64_t used, struct CUstream_st *stream);
/* The number of the last task so far of the worker of a GPU's memory. */
uint64_t sp_cuda_last(unsigned node);

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
