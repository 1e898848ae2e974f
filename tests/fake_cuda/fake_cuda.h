/*
 * Extra functions of the fake CUDA runtime for the programs that run under it. The declarations are
 * weak: a program that calls only those that are not NULL also runs with NVIDIA's library.
 *
 * A test kernel is a host function queued with cudaLaunchHostFunc, on device pointers.
 */
#ifndef SP_FAKE_CUDA_H
#define SP_FAKE_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t points to one */

#define SP_FAKE_WEAK __attribute__((weak))

/*
 * To be called before code touches memory. In a kernel, its device must be able to reach the bytes,
 * or the run ends. Anywhere else it is the host's own access, which must be to host memory.
 */
void sp_fake_kernel_access(const void *at, size_t bytes, int write) SP_FAKE_WEAK;

/*
 * The same in stream order, for kernels that report no accesses: queue it before and after them, so
 * that others must wait for the last one to be ordered with them. `name` must stay.
 */
void sp_fake_queue_access(struct CUstream_st *stream, const char *name, const void *at,
                          size_t bytes, int write) SP_FAKE_WEAK;

/* The name of the kernel that is running, for messages; the string must stay. */
void sp_fake_kernel_name(const char *name) SP_FAKE_WEAK;

/* Counts of a device since the start; copies are counted when they are queued. */
struct sp_fake_counts {
    size_t allocations, bytes, peak_bytes; /* calls of cudaMalloc, bytes now and at the highest */
    size_t pooled;                         /* allocations in the order of a stream */
    size_t in, in_bytes;                   /* copies from the host */
    size_t out, out_bytes;                 /* to the host */
    size_t peer, peer_bytes;               /* from another device */
    size_t local, local_bytes;             /* within the device */
    size_t kernels;
};

void sp_fake_counts(int device, struct sp_fake_counts *counts) SP_FAKE_WEAK;

#ifdef __cplusplus
}
#endif

#endif
