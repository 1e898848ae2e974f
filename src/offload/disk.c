#define _GNU_SOURCE /* O_DIRECT */
#include "offload/disk.h"
#include "offload/host.h"
#include "offload/tensor_sums.h"
#include "offload/transfers.h"
#include "sp_error.h"
#include "transport/clock.h"
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
#include <unistd.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <errno.h>

/* The free space of a file that holds tensors of many sizes: first fit. Pure. */

struct file_gap {
    off_t at;
    size_t bytes;
};

/* All zeros: an empty file. */
struct file_space {
    struct file_gap *gaps; /* by place, no two of them touch */
    int n, cap;
    off_t end;
};

static int insert_gap(struct file_space *f, int i, struct file_gap gap)
{
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 64;
        struct file_gap *more = realloc(f->gaps, (size_t)cap * sizeof *more);

        if (!more)
            return -ENOMEM;
        f->gaps = more;
        f->cap = cap;
    }
    memmove(&f->gaps[i + 1], &f->gaps[i], (size_t)(f->n - i) * sizeof *f->gaps);
    f->gaps[i] = gap;
    f->n++;
    return 0;
}

static void erase_gap(struct file_space *f, int i)
{
    memmove(&f->gaps[i], &f->gaps[i + 1], (size_t)(f->n - i - 1) * sizeof *f->gaps);
    f->n--;
}

/* Takes room from the first gap that has it; otherwise from the end on, and *grows is set. */
static off_t take_space(struct file_space *f, size_t bytes, bool *grows)
{
    off_t at;

    *grows = false;
    for (int i = 0; i < f->n; i++) {
        struct file_gap *gap = &f->gaps[i];

        if (gap->bytes < bytes)
            continue;
        at = gap->at;
        gap->at += (off_t)bytes;
        gap->bytes -= bytes;
        if (!gap->bytes)
            erase_gap(f, i);
        return at;
    }
    *grows = true;
    at = f->end;
    f->end += (off_t)bytes;
    return at;
}

/* The first gap behind a place. */
static int gap_behind(const struct file_space *f, off_t at)
{
    int low = 0, high = f->n;

    while (low < high) {
        int middle = (low + high) / 2;

        if (f->gaps[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Gives room back, joining neighbours. 0 or -ENOMEM. */
static int give_space(struct file_space *f, off_t at, size_t bytes)
{
    int i = gap_behind(f, at);
    bool follows = i > 0 && f->gaps[i - 1].at + (off_t)f->gaps[i - 1].bytes == at;
    bool precedes = i < f->n && at + (off_t)bytes == f->gaps[i].at;

    if (!follows && !precedes)
        return insert_gap(f, i, (struct file_gap){at, bytes});
    if (!follows) {
        f->gaps[i].at = at;
        f->gaps[i].bytes += bytes;
        return 0;
    }
    f->gaps[i - 1].bytes += bytes;
    if (precedes) {
        f->gaps[i - 1].bytes += f->gaps[i].bytes;
        erase_gap(f, i);
    }
    return 0;
}

struct sp_disk {
    char path[4096];
    int fd;
    void (*on_error)(int status);
    struct sp_transfers write, read;
    pthread_mutex_t mutex; /* protects the space */
    struct file_space space;
};

static void fail(void *arg, const char *what, off_t at, int err)
{
    struct sp_disk *d = arg;

    char name[96] = "";

    if (what)
        sp_tensor_sum_words(sp_tensor_place(d->fd, at), name, sizeof name);
    if (what && err)
        sp_error(err, "offload file %s: cannot %s at byte %lld: %s", d->path, what, (long long)at,
                 strerror(err));
    else if (what)
        sp_error(EIO, "offload file %s: it ends before byte %lld, where %s is", d->path,
                 (long long)at, name);
    d->on_error(1);
    abort();
}

/* ---- space ---------------------------------------------------------------------------- */

/* A place as a pointer for StarPU. It must not be NULL, so byte 0 becomes 1. */
static void *name_of(off_t at)
{
    return (void *)(uintptr_t)(at + 1);
}

static off_t place_of(const void *name)
{
    return (off_t)((uintptr_t)name - 1);
}

/* Extends the file by `bytes`. If the file system cannot reserve them, a later write reports that
 * there is no room. (posix_fallocate would then write single bytes, which O_DIRECT refuses.) 0 or
 * an errno. */
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

/* Tensors of many sizes leave gaps, so the file may have to grow. */
off_t sp_disk_take(struct sp_disk *d, size_t size)
{
    size_t bytes = sp_host_round(size);
    bool grows;
    off_t at;
    int err;

    pthread_mutex_lock(&d->mutex);
    at = take_space(&d->space, bytes, &grows);
    err = grows ? make_room(d, at, (off_t)bytes) : 0;
    pthread_mutex_unlock(&d->mutex);
    if (err)
        fail(d, "make room", at, err);
    return at;
}

void sp_disk_give(struct sp_disk *d, off_t at, size_t size)
{
    int err;

    pthread_mutex_lock(&d->mutex);
    err = give_space(&d->space, at, sp_host_round(size));
    pthread_mutex_unlock(&d->mutex);
    SP_NEED(!err, "out of memory for the space of an offload file");
}

static void *alloc(void *base, size_t size)
{
    return name_of(sp_disk_take(base, size));
}

static void give_back(void *base, void *name, size_t size)
{
    sp_disk_give(base, place_of(name), size);
}

/* ---- transfers ------------------------------------------------------------------------ */

struct sp_transfers *sp_disk_transfers(struct sp_disk *d, bool writes)
{
    return writes ? &d->write : &d->read;
}

static void *async_write(void *base, void *name, void *memory, off_t offset, size_t bytes)
{
    return sp_transfer_begin(&((struct sp_disk *)base)->write, memory, place_of(name) + offset,
                             bytes);
}

static void *async_read(void *base, void *name, void *memory, off_t offset, size_t bytes)
{
    return sp_transfer_begin(&((struct sp_disk *)base)->read, memory, place_of(name) + offset,
                             bytes);
}

static int write_now(void *base, void *name, const void *memory, off_t offset, size_t bytes)
{
    void *request = async_write(base, name, (void *)memory, offset, bytes);

    sp_transfer_wait(request);
    sp_transfer_free(request);
    return 0;
}

static int read_now(void *base, void *name, void *memory, off_t offset, size_t bytes)
{
    void *request = async_read(base, name, memory, offset, bytes);

    sp_transfer_wait(request);
    sp_transfer_free(request);
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
    (void)base; /* sp_disk_destroy closes the file */
}

/* StarPU compares tiers by it; here the eviction plan decides the tier, so any value does. */
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
    .wait_request = sp_transfer_wait,
    .test_request = sp_transfer_test,
    .free_request = sp_transfer_free,
};

int sp_disk_register(struct sp_disk *d)
{
    return starpu_disk_register(&ops, d, -1);
}

/* ---- the file ------------------------------------------------------------------------- */

static int start_threads(struct sp_disk *d)
{
    int err = sp_transfers_start(&d->write, d->fd, true, fail, d);

    if (!err) {
        err = sp_transfers_start(&d->read, d->fd, false, fail, d);
        if (err)
            sp_transfers_stop(&d->write);
    }
    return err ? sp_error(-err, "no threads for offload file %s: %s", d->path, strerror(-err)) : 0;
}

/* Warns if the directory is in memory: offloading to it would save nothing. */
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
    /* Some file systems have no O_DIRECT; then transfers use the page cache. */
    fcntl(d->fd, F_SETFL, O_DIRECT);
    return 0;
}

/* Bytes that a user may still write there; -1: unknown. */
static double free_bytes(const struct sp_disk *d)
{
    struct statvfs fs;

    if (fstatvfs(d->fd, &fs) || !fs.f_blocks)
        return -1;
    return (double)fs.f_bavail * (double)fs.f_frsize;
}

/* Refuses too large a file before it fills the disk that others use. */
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
        d->space.end = (off_t)bytes;
        if (bytes > 0 && give_space(&d->space, 0, (size_t)bytes))
            return sp_error(ENOMEM, "out of memory for the space of an offload file");
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
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on file sizes fails like any other */
    pthread_mutex_init(&d->mutex, NULL);
    err = open_file(d, dir);
    if (err) {
        free(d);
        return err;
    }
    err = reserve(d, (int64_t)sp_host_round((size_t)bytes));
    err = err ? err : start_threads(d);
    if (err) {
        close(d->fd);
        free(d->space.gaps);
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
    sp_transfers_stop(&d->write);
    sp_transfers_stop(&d->read);
    close(d->fd);
    free(d->space.gaps);
    free(d);
}

/* ---- rates ---------------------------------------------------------------------------- */

enum { PIECES = 16 };

/* Pieces of the file, and memory for one. */
struct pieces {
    size_t bytes;
    void *memory, *place[PIECES];
};

static int pieces_take(struct sp_disk *d, struct pieces *p)
{
    const size_t most = 4 << 20;
    size_t share =
        (size_t)d->space.end / PIECES / SP_HOST_PAGE * SP_HOST_PAGE; /* within the file */

    p->bytes = share > most ? most : share > 0 ? share : SP_HOST_PAGE;
    if (posix_memalign(&p->memory, SP_HOST_PAGE, p->bytes))
        return sp_error(ENOMEM, "out of memory for measuring a disk");
    memset(p->memory, 1, p->bytes);
    for (int i = 0; i < PIECES; i++)
        p->place[i] = alloc(d, p->bytes);
    return 0;
}

static void pieces_give(struct sp_disk *d, struct pieces *p)
{
    for (int i = 0; i < PIECES; i++)
        give_back(d, p->place[i], p->bytes);
    free(p->memory);
}

int sp_disk_measure(struct sp_disk *d, struct sp_tier_rates *rates)
{
    struct pieces p;
    double begin, middle, end;
    int err = pieces_take(d, &p);

    if (err)
        return err;
    begin = sp_clock_us(CLOCK_MONOTONIC);
    for (int i = 0; i < PIECES; i++)
        write_now(d, p.place[i], p.memory, 0, p.bytes);
    middle = sp_clock_us(CLOCK_MONOTONIC);
    for (int i = 0; i < PIECES; i++)
        read_now(d, p.place[i], p.memory, 0, p.bytes);
    end = sp_clock_us(CLOCK_MONOTONIC);
    pieces_give(d, &p);
    rates->write = 1e6 * PIECES * (double)p.bytes / (middle - begin);
    rates->read = 1e6 * PIECES * (double)p.bytes / (end - middle);
    return 0;
}

/* Reads and writes use different pieces of the file. They share one memory buffer, whose contents
 * do not matter. */
int sp_disk_measure_both(struct sp_disk *d, double *both)
{
    enum { EACH = PIECES / 2 };
    void *request[PIECES];
    struct pieces p;
    double begin;
    int err = pieces_take(d, &p);

    if (err)
        return err;
    for (int i = 0; i < EACH; i++) /* pieces never written would not be read from the disk */
        write_now(d, p.place[i], p.memory, 0, p.bytes);
    begin = sp_clock_us(CLOCK_MONOTONIC);
    for (int i = 0; i < EACH; i++) {
        request[i] = async_read(d, p.place[i], p.memory, 0, p.bytes);
        request[EACH + i] = async_write(d, p.place[EACH + i], p.memory, 0, p.bytes);
    }
    for (int i = 0; i < PIECES; i++) {
        sp_transfer_wait(request[i]);
        sp_transfer_free(request[i]);
    }
    *both = 1e6 * EACH * (double)p.bytes / (sp_clock_us(CLOCK_MONOTONIC) - begin);
    pieces_give(d, &p);
    return 0;
}

struct sp_disk_traffic sp_disk_traffic(struct sp_disk *d)
{
    struct sp_disk_traffic t = {0};

    if (!d)
        return t;
    sp_transfers_sum(&d->write, &t.written, &t.write_us);
    sp_transfers_sum(&d->read, &t.read, &t.read_us);
    return t;
}
