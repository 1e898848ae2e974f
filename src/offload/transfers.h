/* A thread that reads, or writes, a file, or memory in its place, for others: one transfer after the other. */
#ifndef SP_TRANSFERS_H
#define SP_TRANSFERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sp_transfer_job;

struct sp_transfers {
    int fd; /* -1: `at` is an address */
    bool writes, ends;
    void (*fail)(void *arg, const char *what, off_t at, int err);
    void *arg;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, done;
    struct sp_transfer_job *first, **last;
    double bytes, busy_us;
};

/* `fail` is called by the thread when it cannot "read" or "write", with an errno, or 0 where the file ends too
 * early; with NULL when bytes came back that are not those that left (tensor_sums.h), which was said. It
 * does not return. 0 or -errno. */
int sp_transfers_start(struct sp_transfers *q, int fd, bool writes,
                       void (*fail)(void *arg, const char *what, off_t at, int err), void *arg);
/* After the last transfer was made. */
void sp_transfers_stop(struct sp_transfers *q);

/* Bytes since the start, and how long the thread was at it. */
void sp_transfers_sum(struct sp_transfers *q, double *bytes, double *busy_us);

/*
 * Memory is of offload/host.h: it ends in whole pages, of which the last is transferred whole. Begun, asked
 * whether it is done (0: no), waited for, and freed.
 */
void *sp_transfer_begin(struct sp_transfers *q, void *memory, off_t at, size_t bytes);
int sp_transfer_test(void *transfer);
void sp_transfer_wait(void *transfer);
void sp_transfer_free(void *transfer);

/* The same for those who do not ask: the thread calls `then` when it is done. */
void sp_transfer_post(struct sp_transfers *q, void *memory, off_t at, size_t bytes,
                      void (*then)(void *arg), void *arg);

/* Of a clock that does not jump. */
double sp_transfers_now_us(void);

#endif
