/*
 * Host memory of a run that offloads: StarPU's buffers in main memory come from here, so that what is
 * freed really leaves the process, lies on the NUMA node of the process's cores (hwloc), can be
 * written to disk without a copy, and is counted.
 */
#ifndef SP_HOST_H
#define SP_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole pages of a disk: what O_DIRECT wants of addresses, offsets and sizes. */
enum { SP_HOST_PAGE = 4096 };

static inline size_t sp_host_round(size_t bytes)
{
    return (bytes + SP_HOST_PAGE - 1) / SP_HOST_PAGE * SP_HOST_PAGE;
}

/* Pins a buffer, so that GPUs copy to and from it while they compute, or says that it may not be; and the reverse. */
struct sp_host_pins {
    bool (*pin)(void *memory, size_t bytes);
    void (*unpin)(void *memory);
};

/* Before StarPU starts: takes over its allocations in main memory. Up to `idle` bytes of buffers that
 * were freed wait for the next one of their size. `pins`, NULL: none, are used as long as buffers are there; pinning is
 * dear, so that such a run wants `idle` without a limit (SIZE_MAX). */
void sp_host_start(size_t idle, const struct sp_host_pins *pins);
/*
 * After StarPU started, where buffers are pinned: has so many bytes for the first buffers, which all cores touch and one
 * call pins. Buffer by buffer the first step would wait for the system, some ten seconds for 30 GB. Where the system
 * gives less, or pins less, the rest are made as they are needed.
 */
void sp_host_reserve(int64_t bytes);
/* After StarPU ended. */
void sp_host_stop(void);

/* Gives back what is idle, and begins anew with the highest: between parts of a run. */
void sp_host_trim(void);

/* Bytes in use now, and at the highest since the start; idle ones are not counted. */
int64_t sp_host_bytes(void);
int64_t sp_host_peak(void);

/* Resident memory of the process in bytes, now and at its highest; 0: not known. */
int64_t sp_host_resident(void);
int64_t sp_host_most_resident(void);

#endif
