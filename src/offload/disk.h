/*
 * The disk tier: one file that StarPU uses as a memory node. Threads of their own write and read it, past
 * the page cache where the file system allows, so that a transfer costs the workers nothing and memory
 * that is offloaded does not come back as cache.
 */
#ifndef SP_DISK_H
#define SP_DISK_H

#include "offload/eviction.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_disk;

/*
 * Makes a file of `bytes` in a directory, which has no name any more when this returns, so that nothing
 * is left behind by a run that is killed. `ends` is called, after one line on stderr, by the thread that
 * cannot write or read it later on: it must not return. 0; or one line on stderr and -errno: no such
 * directory, not enough room.
 */
int sp_disk_create(const char *dir, int64_t bytes, void (*ends)(int status), struct sp_disk **disk);
void sp_disk_destroy(struct sp_disk *disk);

/* Bytes a second, measured with a few tens of MiB. 0 or -errno after one line. */
int sp_disk_measure(struct sp_disk *disk, struct sp_tier_rates *rates);
/* The same each way, when both ways are busy. */
int sp_disk_measure_both(struct sp_disk *disk, double *both);

/* In a started StarPU: the memory node of the file, -1 if StarPU has no room for one more. StarPU lets
 * go of it when it ends. */
int sp_disk_register(struct sp_disk *disk);

/* Room in the file for others than StarPU, and the threads that write and read it. */
struct sp_transfers;
off_t sp_disk_take(struct sp_disk *disk, size_t bytes);
void sp_disk_give(struct sp_disk *disk, off_t at, size_t bytes);
struct sp_transfers *sp_disk_transfers(struct sp_disk *disk, bool writes);

/* Since the start: bytes, and how long a thread was at it; zeros without a disk. */
struct sp_disk_traffic {
    double written, read; /* bytes */
    double write_us, read_us;
};
struct sp_disk_traffic sp_disk_traffic(struct sp_disk *disk);

#endif
