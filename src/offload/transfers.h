/*
 * A thread that moves tensors between memory and a file, or between a GPU and memory of the host,
 * one after the other. `reads` and `writes` are from the tensors' point of view: a GPU's tensors
 * are written to the host.
 */
#ifndef SP_TRANSFERS_H
#define SP_TRANSFERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_cuda_copies; /* sinks/starpu/cuda_memory.h */
struct sp_transfer_job;

struct sp_transfers {
    int fd;     /* -1: `at` is an address in memory of the host, `memory` one on the GPU */
    int device; /* the GPU */
    struct sp_cuda_copies *copies;
    bool writes, ends;
    void (*fail)(void *arg, const char *what, off_t at, int err);
    void *arg;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, done;
    struct sp_transfer_job *first, **last;
    double bytes, busy_us, ended_us; /* ended_us: when the last transfer did */
};

/* The thread calls `fail` when it cannot "read" or "write" (`what`), with an errno, or 0 if the
 * file ends too early; with `what` NULL when a checksum is wrong (tensor_sums.h), after the
 * message. `fail` must not return. 0 or -errno. */
int sp_transfers_start(struct sp_transfers *q, int fd, bool writes,
                       void (*fail)(void *arg, const char *what, off_t at, int err), void *arg);
/* The same for copies between a GPU and the host. A wrong checksum ends the process. */
int sp_transfers_start_copies(struct sp_transfers *q, int device, bool writes);
/* Call after the last transfer was submitted; it waits for all of them. */
void sp_transfers_stop(struct sp_transfers *q);

/* Bytes since the start, and how long the thread was transferring them. */
void sp_transfers_sum(struct sp_transfers *q, double *bytes, double *busy_us);

/*
 * Begins a transfer; tests it (0: not done), waits for it, frees it. For a file `memory` must come
 * from offload/host.h: it consists of whole pages, and the last one is transferred whole.
 */
void *sp_transfer_begin(struct sp_transfers *q, void *memory, off_t at, size_t bytes);
int sp_transfer_test(void *transfer);
void sp_transfer_wait(void *transfer);
void sp_transfer_free(void *transfer);

/* The same without a request to test: the thread calls `then` when the transfer is done. A copy
 * from or to a GPU follows the task that `used` its buffer last (sinks/starpu/cuda.h). */
struct sp_moved_bytes {
    void *memory;
    off_t at;
    size_t bytes;
    uint64_t used;
};
void sp_transfer_post(struct sp_transfers *q, struct sp_moved_bytes transfer,
                      void (*then)(void *arg), void *arg);

#endif
