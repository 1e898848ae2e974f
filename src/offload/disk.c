#define _GNU_SOURCE /* O_DIRECT */
#include "offload/disk.h"
#include "offload/host.h"
#include "sp_error.h"
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* A transfer that a thread makes. */
struct transfer {
    struct transfer *next;
    struct queue *queue;
    void *memory;
    off_t at;
    size_t bytes;
    bool done;
};

/* One thread and the transfers that it makes, one after the other. */
struct queue {
    struct sp_disk *disk;
    bool writes, ends;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t more, done;
    struct transfer *first, **last;
    double bytes, busy_us;
};

/* Free space, by place. */
struct gap {
    off_t at;
    size_t bytes;
};

struct sp_disk {
    char path[4096];
    int fd;
    void (*on_error)(int status);
    struct queue write, read;
    pthread_mutex_t mutex; /* of the gaps */
    struct gap *gaps;
    int n_gaps, cap_gaps;
    off_t end;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void fail(struct sp_disk *d, const char *what, off_t at, int err)
{
    sp_error(err, "offload file %s: cannot %s at byte %lld: %s", d->path, what, (long long)at,
             strerror(err));
    d->on_error(1);
    abort();
}

/* ---- space ---------------------------------------------------------------------------- */

/* A gap at place i. Mutex held. */
static void insert_gap(struct sp_disk *d, int i, off_t at, size_t bytes)
{
    if (d->n_gaps == d->cap_gaps) {
        int cap = d->cap_gaps ? 2 * d->cap_gaps : 64;
        struct gap *more = realloc(d->gaps, (size_t)cap * sizeof *more);

        STARPU_ASSERT_MSG(more, "starpipe: out of memory for the space of an offload file");
        d->gaps = more;
        d->cap_gaps = cap;
    }
    memmove(&d->gaps[i + 1], &d->gaps[i], (size_t)(d->n_gaps - i) * sizeof *d->gaps);
    d->gaps[i] = (struct gap){at, bytes};
    d->n_gaps++;
}

static void erase_gap(struct sp_disk *d, int i)
{
    memmove(&d->gaps[i], &d->gaps[i + 1], (size_t)(d->n_gaps - i - 1) * sizeof *d->gaps);
    d->n_gaps--;
}

/* What StarPU is given for a place: never NULL. */
static void *name_of(off_t at)
{
    return (void *)(uintptr_t)(at + 1);
}

static off_t place_of(const void *name)
{
    return (off_t)((uintptr_t)name - 1);
}

/* The file grows by `bytes`. Where the file system cannot reserve them, a write says that there is no
 * room. (posix_fallocate would write bytes one by one there, which O_DIRECT refuses.) 0 or an errno. */
static int make_room(struct sp_disk *d, off_t at, off_t bytes)
{
    int err;

    do
        err = fallocate(d->fd, 0, at, bytes) ? errno : 0;
    while (err == EINTR);
    if (err != EOPNOTSUPP && err != ENOSYS)
        return err;
    return ftruncate(d->fd, at + bytes) ? errno : 0;
}

/* First fit. Beyond the end the file grows: tensors of many sizes leave gaps. */
static void *alloc(void *base, size_t size)
{
    struct sp_disk *d = base;
    size_t bytes = sp_host_round(size);
    off_t at;
    int err;

    pthread_mutex_lock(&d->mutex);
    for (int i = 0; i < d->n_gaps; i++) {
        struct gap *gap = &d->gaps[i];

        if (gap->bytes < bytes)
            continue;
        at = gap->at;
        gap->at += (off_t)bytes;
        gap->bytes -= bytes;
        if (!gap->bytes)
            erase_gap(d, i);
        pthread_mutex_unlock(&d->mutex);
        return name_of(at);
    }
    at = d->end;
    d->end += (off_t)bytes;
    err = make_room(d, at, (off_t)bytes);
    pthread_mutex_unlock(&d->mutex);
    if (err)
        fail(d, "make room", at, err);
    return name_of(at);
}

/* Joins neighbours. */
static void give_back(void *base, void *name, size_t size)
{
    struct sp_disk *d = base;
    size_t bytes = sp_host_round(size);
    off_t at = place_of(name);
    int i = 0, high;

    pthread_mutex_lock(&d->mutex);
    high = d->n_gaps;
    while (i < high) { /* the first gap behind it */
        int middle = (i + high) / 2;

        if (d->gaps[middle].at < at)
            i = middle + 1;
        else
            high = middle;
    }
    insert_gap(d, i, at, bytes);
    if (i + 1 < d->n_gaps && at + (off_t)bytes == d->gaps[i + 1].at) {
        d->gaps[i].bytes += d->gaps[i + 1].bytes;
        erase_gap(d, i + 1);
    }
    if (i > 0 && d->gaps[i - 1].at + (off_t)d->gaps[i - 1].bytes == at) {
        d->gaps[i - 1].bytes += d->gaps[i].bytes;
        erase_gap(d, i);
    }
    pthread_mutex_unlock(&d->mutex);
}

/* ---- transfers ------------------------------------------------------------------------ */

/* Buffers of offload/host.h end in whole pages, so the last page may be transferred whole. */
static void transfer(struct queue *q, char *memory, off_t at, size_t bytes)
{
    size_t left = sp_host_round(bytes);

    while (left > 0) {
        ssize_t n = q->writes ? pwrite(q->disk->fd, memory, left, at)
                              : pread(q->disk->fd, memory, left, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            fail(q->disk, q->writes ? "write" : "read", at, n < 0 ? errno : EIO);
        memory += n;
        at += n;
        left -= (size_t)n;
    }
}

static void *run(void *arg)
{
    struct queue *q = arg;

    pthread_mutex_lock(&q->mutex);
    for (;;) {
        struct transfer *t = q->first;
        double start;

        if (!t && q->ends)
            break;
        if (!t) {
            pthread_cond_wait(&q->more, &q->mutex);
            continue;
        }
        q->first = t->next;
        if (!q->first)
            q->last = &q->first;
        pthread_mutex_unlock(&q->mutex);
        start = now_us();
        transfer(q, t->memory, t->at, t->bytes);
        pthread_mutex_lock(&q->mutex);
        q->busy_us += now_us() - start;
        q->bytes += (double)t->bytes;
        __atomic_store_n(&t->done, true, __ATOMIC_RELEASE); /* t is its owner's from here on */
        pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

static void *start(struct queue *q, void *name, void *memory, off_t offset, size_t bytes)
{
    struct transfer *t = malloc(sizeof *t);

    STARPU_ASSERT_MSG(t, "starpipe: out of memory for a transfer");
    *t = (struct transfer){
        .queue = q, .memory = memory, .at = place_of(name) + offset, .bytes = bytes};
    pthread_mutex_lock(&q->mutex);
    *q->last = t;
    q->last = &t->next;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    return t;
}

static void *async_write(void *base, void *name, void *memory, off_t offset, size_t bytes)
{
    return start(&((struct sp_disk *)base)->write, name, memory, offset, bytes);
}

static void *async_read(void *base, void *name, void *memory, off_t offset, size_t bytes)
{
    return start(&((struct sp_disk *)base)->read, name, memory, offset, bytes);
}

static int test_request(void *request)
{
    return __atomic_load_n(&((struct transfer *)request)->done, __ATOMIC_ACQUIRE);
}

static void wait_request(void *request)
{
    struct transfer *t = request;

    pthread_mutex_lock(&t->queue->mutex);
    while (!t->done)
        pthread_cond_wait(&t->queue->done, &t->queue->mutex);
    pthread_mutex_unlock(&t->queue->mutex);
}

/* The thread lets go of it with the mutex. */
static void free_request(void *request)
{
    struct transfer *t = request;

    pthread_mutex_lock(&t->queue->mutex);
    pthread_mutex_unlock(&t->queue->mutex);
    free(t);
}

static int write_now(void *base, void *name, const void *memory, off_t offset, size_t bytes)
{
    void *request = async_write(base, name, (void *)memory, offset, bytes);

    wait_request(request);
    free_request(request);
    return 0;
}

static int read_now(void *base, void *name, void *memory, off_t offset, size_t bytes)
{
    void *request = async_read(base, name, memory, offset, bytes);

    wait_request(request);
    free_request(request);
    return (int)bytes;
}

/* ---- StarPU's view -------------------------------------------------------------------- */

static void *plug(void *parameter, starpu_ssize_t size)
{
    (void)size;
    return parameter;
}

static void unplug(void *base)
{
    (void)base; /* the file is its maker's */
}

/* StarPU would compare tiers by it; what goes where is planned here. */
static int bandwidth(unsigned node, void *base)
{
    (void)node, (void)base;
    return 1;
}

static struct starpu_disk_ops ops = {
    .plug = plug,
    .unplug = unplug,
    .bandwidth = bandwidth,
    .alloc = alloc,
    .free = give_back,
    .read = read_now,
    .write = write_now,
    .async_read = async_read,
    .async_write = async_write,
    .wait_request = wait_request,
    .test_request = test_request,
    .free_request = free_request,
};

int sp_disk_register(struct sp_disk *d)
{
    return starpu_disk_register(&ops, d, -1);
}

/* ---- the file ------------------------------------------------------------------------- */

static int start_queue(struct sp_disk *d, struct queue *q, bool writes)
{
    *q = (struct queue){.disk = d, .writes = writes};
    q->last = &q->first;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->done, NULL);
    return -pthread_create(&q->thread, NULL, run, q);
}

static void stop_queue(struct queue *q)
{
    pthread_mutex_lock(&q->mutex);
    q->ends = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(q->thread, NULL);
}

static int start_queues(struct sp_disk *d)
{
    int err = start_queue(d, &d->write, true);

    if (!err) {
        err = start_queue(d, &d->read, false);
        if (err)
            stop_queue(&d->write);
    }
    return err ? sp_error(-err, "no threads for offload file %s: %s", d->path, strerror(-err)) : 0;
}

/* Memory is no place to save memory. */
static void warn_of_memory(const struct sp_disk *d, const char *dir)
{
    struct statfs fs;

    if (!fstatfs(d->fd, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
        sp_warn("%s is in memory: what is offloaded there still takes it; give --offload-dir a "
                "directory on a disk",
                dir);
}

static int open_file(struct sp_disk *d, const char *dir)
{
    snprintf(d->path, sizeof d->path, "%s/starpipe-offload-XXXXXX", dir);
    d->fd = mkostemp(d->path, O_CLOEXEC);
    if (d->fd < 0)
        return sp_error(errno, "cannot make offload file %s: %s", d->path, strerror(errno));
    unlink(d->path);
    /* Some file systems have no such thing: then through the cache. */
    fcntl(d->fd, F_SETFL, O_DIRECT);
    return 0;
}

/* Bytes that a user may still write there; -1: the file system does not say. */
static double free_bytes(const struct sp_disk *d)
{
    struct statvfs fs;

    if (fstatvfs(d->fd, &fs) || !fs.f_blocks)
        return -1;
    return (double)fs.f_bavail * (double)fs.f_frsize;
}

/* Too large a file is refused before it takes what there is from others. */
static int reserve(struct sp_disk *d, int64_t bytes)
{
    const double MiB = 1024 * 1024;
    double unused = free_bytes(d);
    int err = 0;

    if (unused >= 0 && (double)bytes > unused)
        err = ENOSPC;
    else if (bytes > 0)
        err = make_room(d, 0, (off_t)bytes);
    if (!err) {
        d->end = (off_t)bytes;
        if (bytes > 0)
            insert_gap(d, 0, 0, (size_t)bytes);
        return 0;
    }
    if (ftruncate(d->fd, 0) == 0) /* some file systems keep the part that they could reserve */
        unused = free_bytes(d);
    if (err == ENOSPC && unused >= 0)
        return sp_error(ENOSPC,
                        "offload file %s needs %.0f MiB, %.0f are free there; give --offload-dir "
                        "another disk or raise --memory-limit",
                        d->path, (double)bytes / MiB, unused / MiB);
    return sp_error(err, "offload file %s needs %.0f MiB: %s", d->path, (double)bytes / MiB,
                    strerror(err));
}

int sp_disk_create(const char *dir, int64_t bytes, void (*ends)(int status), struct sp_disk **disk)
{
    struct sp_disk *d = calloc(1, sizeof *d);
    int err;

    if (!d)
        return sp_error(ENOMEM, "out of memory for an offload file");
    d->on_error = ends;
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like others */
    pthread_mutex_init(&d->mutex, NULL);
    err = open_file(d, dir);
    if (err) {
        free(d);
        return err;
    }
    err = reserve(d, (int64_t)sp_host_round((size_t)bytes));
    err = err ? err : start_queues(d);
    if (err) {
        close(d->fd);
        free(d->gaps);
        free(d);
        return err;
    }
    warn_of_memory(d, dir);
    *disk = d;
    return 0;
}

void sp_disk_destroy(struct sp_disk *d)
{
    if (!d)
        return;
    stop_queue(&d->write);
    stop_queue(&d->read);
    close(d->fd);
    free(d->gaps);
    free(d);
}

int sp_disk_measure(struct sp_disk *d, struct sp_tier_rates *rates)
{
    enum { MOST = 4 << 20, PIECES = 16 };
    void *memory, *place[PIECES];
    size_t piece = (size_t)d->end / PIECES / SP_HOST_PAGE * SP_HOST_PAGE; /* within the file */
    double begin, middle, end;

    piece = piece > MOST ? MOST : piece > 0 ? piece : SP_HOST_PAGE;
    if (posix_memalign(&memory, SP_HOST_PAGE, piece))
        return sp_error(ENOMEM, "out of memory for measuring a disk");
    memset(memory, 1, piece);
    for (int i = 0; i < PIECES; i++)
        place[i] = alloc(d, piece);
    begin = now_us();
    for (int i = 0; i < PIECES; i++)
        write_now(d, place[i], memory, 0, piece);
    middle = now_us();
    for (int i = 0; i < PIECES; i++)
        read_now(d, place[i], memory, 0, piece);
    end = now_us();
    for (int i = 0; i < PIECES; i++)
        give_back(d, place[i], piece);
    free(memory);
    rates->write = 1e6 * PIECES * (double)piece / (middle - begin);
    rates->read = 1e6 * PIECES * (double)piece / (end - middle);
    return 0;
}

struct sp_disk_traffic sp_disk_traffic(struct sp_disk *d)
{
    struct sp_disk_traffic t = {0};

    if (!d)
        return t;
    pthread_mutex_lock(&d->write.mutex);
    t.written = d->write.bytes;
    t.write_us = d->write.busy_us;
    pthread_mutex_unlock(&d->write.mutex);
    pthread_mutex_lock(&d->read.mutex);
    t.read = d->read.bytes;
    t.read_us = d->read.busy_us;
    pthread_mutex_unlock(&d->read.mutex);
    return t;
}
