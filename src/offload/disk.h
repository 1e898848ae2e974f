/*
 * The disk tier: one file that StarPU uses as a memory node. Dedicated threads write and read it,
 * so that transfers cost the workers nothing. They bypass the page cache if the file system allows
 * it, so that offloaded data does not fill main memory again as cache.
 */
#ifndef SP_DISK_H
#define SP_DISK_H

#include "offload/eviction.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_disk;

/*
 * Makes a file of `bytes` in a directory. The file is unlinked when this returns, so that a killed
 * run leaves nothing behind. A thread that later fails to write or read it prints one line on
 * stderr and calls `ends`, which must not return. 0; or one line on stderr and -errno: no such
 * directory, not enough room.
 */
int sp_disk_create(const char *dir, int64_t bytes, void (*ends)(int status), struct sp_disk **disk);
void sp_disk_destroy(struct sp_disk *disk);

/* Measures bytes a second with a few tens of MiB. 0 or -errno after one line. */
int sp_disk_measure(struct sp_disk *disk, struct sp_tier_rates *rates);
/* Measures bytes a second in each direction while both directions are busy. */
int sp_disk_measure_both(struct sp_disk *disk, double *both);

/* Registers the file with a started StarPU. Returns its memory node, or -1 if StarPU has no room
 * for one more. StarPU releases it when it ends. */
int sp_disk_register(struct sp_disk *disk);

/* Room in the file for tensors outside StarPU, and the threads that write and read it. */
struct sp_transfers;
off_t sp_disk_take(struct sp_disk *disk, size_t bytes);
void sp_disk_give(struct sp_disk *disk, off_t at, size_t bytes);
struct sp_transfers *sp_disk_transfers(struct sp_disk *disk, bool writes);

/* Bytes since the start, and how long a thread was transferring them; zeros without a disk. */
struct sp_disk_traffic {
    double written, read; /* bytes */
    double write_us, read_us;
};
struct sp_disk_traffic sp_disk_traffic(struct sp_disk *disk);

#endif
