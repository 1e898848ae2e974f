/*
 * A CUDA runtime without a GPU: what NVIDIA's libcudart does for StarPU and starpipe, on the CPU.
 * As a library it takes the real one's name, so that programs built for CUDA run unchanged:
 *
 *   LD_LIBRARY_PATH=<where the fake libraries are> SP_FAKE_GPUS=2 program
 *
 * and unit tests of what calls CUDA link device.c, memory.c, region.c, stream.c, queue.c, event.c
 * and check.c, and choose in sp_fake_cudart what it answers.
 *
 * Device memory is host memory in mappings of its own, full of NaN when new and out of reach when
 * freed; a stream is a queue with a thread; kernels are host functions. If CUDA reports an
 * error that a program may meet, it is returned (out of memory, registered twice, not ready); a
 * mistake in the program (a direction that is not the copy's, a stale handle, a pointer into
 * nothing) ends it with one line and SIGABRT, so that no test passes over it. Functions that nobody
 * calls end the run too.
 *
 *   SP_FAKE_GPUS=n            devices (1)
 *   SP_FAKE_GPU_MEM=n[k|M|G]  bytes of each (1G)
 *   SP_FAKE_GPU_POOLS=0       a driver without memory pools (1)
 *   SP_FAKE_GPU_CAPABILITY=n  compute capability, times ten (90)
 *   SP_FAKE_GPU_JITTER_US=n   everything queued waits 0 to n us first, at random (0)
 *   SP_FAKE_GPU_SEED=n        of that (1)
 *   SP_FAKE_GPU_BUS=n         the bus copies n MB/s in each direction, one copy at a time (0: at once)
 *   SP_FAKE_GPU_KERNELS=n     kernels read and write n MB/s, one at a time (0: as fast as they are). The
 *                             CPU must be faster than both
 *   SP_FAKE_GPU_QUEUES=n      streams share n queues, as on a GPU: a queue starts its kernels in order,
 *                             and one that waits for its stream stops all behind it (0: no queues)
 *   SP_FAKE_GPU_CHECK=1       two accesses that conflict and are not ordered end the run: check.c
 *   SP_FAKE_GPU_COUNTS=1      one line on stderr at the end for each device: its memory
 *
 * With StarPU, STARPU_HOSTNAME=fake<devices> keeps apart the bus speeds that it measures once for
 * each number of devices. Kernels that use OpenMP want OMP_NUM_THREADS=1 where cores are few.
 *
 * One lock covers all state; it is free while a copy or a kernel runs.
 */
#ifndef SP_FAKE_H
#define SP_FAKE_H

#define _GNU_SOURCE /* names of threads */

#include "fake_cudart.h"
#include <pthread.h>

enum {
    SP_DEVICES = 16,
    SP_QUEUES = 32,
    SP_ACTORS = 128, /* who can access memory, for the checker: 0 is the host, others streams */
};

/* ---- errors, the lock, devices: device.c ----------------------------------------------------- */

/* Every function of the API begins with this, and ends with sp_leave; not from within a kernel. */
#define SP_ENTER() sp_enter(__func__)
void sp_enter(const char *function);
/* Remembers an error as the thread's last one. */
cudaError_t sp_leave(cudaError_t err);

/* Ends the run: one line with the function of the API that the thread is in. */
void sp_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)))
__attribute__((noreturn));
void sp_fake_unknown(const char *function);

/* Filled with zeros; never NULL. */
void *sp_new(size_t bytes);

double sp_now_us(void);

extern pthread_mutex_t sp_lock;

void sp_take_lock(void);
void sp_give_lock(void);

int sp_current(void);
/* Ends the run if there is no such device. */
void sp_device_exists(int device);
/* True if kernels on `device` may access memory of `peer`. */
bool sp_device_reaches(int device, int peer);
extern struct sp_fake_counts sp_counts[SP_DEVICES];

/* ---- happens-before: check.c ----------------------------------------------------------------- */

/* at[i]: how much of what actor i did is known to be over. */
struct sp_clock {
    uint64_t at[SP_ACTORS];
};

struct sp_span {
    char *at;
    size_t bytes;
};

/* Accesses to a piece of memory that later ones may still conflict with. */
struct sp_accesses {
    struct sp_access *list;
    unsigned n, room, collect_at;
};

struct sp_item;

/* All of these do nothing without SP_FAKE_GPU_CHECK. The lock is held. */
void sp_check_queue(struct sp_clock *stream, int actor, struct sp_item *item);
void sp_check_order(struct sp_clock *stream, const struct sp_item *earlier);
/* The host knows that it has ended. */
void sp_check_seen(const struct sp_item *item);
/* Now, by an item that runs, or NULL: by the host. */
void sp_check_access(const struct sp_item *by, struct sp_span span, bool write, const char *what);
void sp_check_forget(struct sp_accesses *accesses);

/* ---- memory: region.c, memory.c, host.c ------------------------------------------------------ */

enum sp_place { SP_ON_DEVICE, SP_PINNED, SP_REGISTERED };

struct CUmemPoolHandle_st {
    int device;
    size_t in_use; /* allocations */
    bool reaches[SP_DEVICES];
};

struct sp_region {
    char *base;
    size_t bytes;
    enum sp_place place;
    int device; /* that it is on, or that was current */
    char *map;  /* pages from cudaMalloc and cudaHostAlloc, and after them one out of reach */
    size_t map_bytes;
    struct CUmemPoolHandle_st *pool; /* NULL: of cudaMalloc */
    struct sp_accesses accesses;
};

/* A device gives memory in pieces of this. */
enum { SP_ALIGNMENT = 256 };

/* With pages of its own, not in the table; place is not SP_REGISTERED. */
struct sp_region *sp_region_new(enum sp_place place, int device, size_t bytes);

/* The lock is held by those that follow. */

void sp_region_insert(struct sp_region *r);
/* Takes it out of the table and frees it. */
void sp_region_end(struct sp_region *r);
/* True if some region has some of [at, at + bytes). */
bool sp_region_touched(const void *at, size_t bytes);
/* The region that has all of [at, at + bytes); NULL: none has any. Half in one ends the run. */
struct sp_region *sp_region_of(const void *at, size_t bytes);
/* A pointer and where it points, in words that stay until the thread's next call. */
const char *sp_where(const void *at);

/* Waits for all that uses memory of the host or of cudaMalloc, and ends it. Without the lock. */
void sp_memory_release(void *pointer, enum sp_place place);
/* So much of the pool in the order of the stream. Without the lock. */
cudaError_t sp_pool_allocate(void **pointer, size_t bytes, struct CUmemPoolHandle_st *pool,
                             cudaStream_t stream);

/* ---- streams: queue.c, stream.c -------------------------------------------------------------- */

/* Parts of a device that do one thing after the other, at rates of their own. */
enum sp_engine { SP_NO_ENGINE, SP_KERNELS, SP_TO_HOST, SP_TO_DEVICE, SP_ENGINES };

/* Something queued. Whoever keeps a pointer holds a reference. */
struct sp_item {
    struct sp_item *next;
    int refs;
    bool done, is_kernel, hangs;
    unsigned long turn; /* of a kernel, in its queue */
    double end_us;
    enum sp_engine engine;
    size_t bytes;                /* that it moves, or that a kernel reads and writes */
    int device, stream, current; /* where it is, and the device of the thread that queued it */
    unsigned long number;        /* in its stream */
    const char *name;
    void (*run)(struct sp_item *item);
    struct sp_item *after; /* of another stream: done when that is */
    struct sp_span span;   /* that it writes, or frees */
    union {
        const char *from; /* of a copy */
        int value;        /* of a fill */
        struct {
            cudaHostFn_t function;
            void *argument;
        } kernel;
    };
    char *staged;           /* freed with the item */
    struct sp_clock *clock; /* what is over when it starts; at[stream] is itself */
};

struct CUstream_st {
    struct CUstream_st *next;
    bool live, closing, started;
    int device, actor;
    unsigned flags;
    unsigned long queued;
    struct sp_item *first, *last; /* not begun */
    struct sp_item *running;
    struct sp_item *newest; /* done or not */
    pthread_cond_t work;
    uint64_t random;
    struct sp_clock clock;
};

/* By actor: what is queued is never done. */
extern bool sp_hung[SP_ACTORS];

/* All that are live, and others that wait to be used again. */
extern struct CUstream_st *sp_streams;

/* The lock is held by all that follow. */

struct sp_item *sp_item_new(const char *name, void (*run)(struct sp_item *item));
void sp_item_hold(struct sp_item *item);
void sp_item_drop(struct sp_item *item);

/* Queues an item; the caller's reference stays the caller's. */
void sp_queue(struct CUstream_st *stream, struct sp_item *item);
/* Queues a wait for an item of another stream. */
void sp_queue_wait(struct CUstream_st *stream, struct sp_item *earlier);
/* Queues an item and drops it; `wait`: returns when it is done. */
void sp_submit(struct CUstream_st *stream, struct sp_item *item, bool wait);
/* Until the item is done, and the host knows. */
void sp_wait(struct sp_item *item);
/* Until all that is queued on the device now is done. */
void sp_wait_device(int device);

/* The stream of a handle; the default one of the current device for 0. Others end the run. */
struct CUstream_st *sp_stream_of(cudaStream_t handle);
/* t is s, or s is the default stream that t waits for and that waits for t. */
bool sp_stream_includes(const struct CUstream_st *s, const struct CUstream_st *t);
void sp_stream_ended(struct CUstream_st *stream);

/* The item that the thread runs, if it is a kernel. */
extern __thread struct sp_item *sp_kernel;

#endif
