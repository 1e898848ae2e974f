/*
 * Host memory of a run that offloads. StarPU's buffers in main memory come from here. Freed buffers
 * are returned to the system, buffers lie on the NUMA node of the process's cores (hwloc), can be
 * written to disk without a copy, and are counted.
 */
#ifndef SP_HOST_H
#define SP_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* O_DIRECT requires addresses, offsets and sizes in multiples of this. */
enum { SP_HOST_PAGE = 4096 };

static inline size_t sp_host_round(size_t bytes)
{
    return (bytes + SP_HOST_PAGE - 1) / SP_HOST_PAGE * SP_HOST_PAGE;
}

/* `pin` makes a buffer one that GPUs copy to and from while they compute; false: it is refused.
 * `unpin` undoes that. */
struct sp_host_pins {
    bool (*pin)(void *memory, size_t bytes);
    void (*unpin)(void *memory);
};

/* Call before StarPU starts: takes over its allocations in main memory. Up to `idle` bytes of freed
 * buffers are kept for later ones of their size. `pins`, or NULL for none, must live as long as the
 * buffers. Pinning is slow, so a run that pins should give no limit (SIZE_MAX) as `idle`. */
void sp_host_start(size_t idle, const struct sp_host_pins *pins);
/*
 * Call after StarPU started, if buffers are pinned: reserves `bytes` for the first buffers. All
 * cores touch the memory and one call pins it; buffer by buffer, the first step would wait for the
 * system, some ten seconds for 30 GB. If the system gives or pins less, the remaining buffers are
 * made as they are needed.
 */
void sp_host_reserve(int64_t bytes);
/* Call after StarPU ended. */
void sp_host_stop(void);

/* A buffer of the same kind for another use than StarPU's; NULL: no memory. */
void *sp_host_take(size_t bytes);
void sp_host_give(void *memory, size_t bytes);

/* Returns idle buffers to the system and restarts sp_host_peak. Call it between parts of a run. */
void sp_host_trim(void);

/* Bytes in use now, and at the highest since the start; idle ones are not counted. */
int64_t sp_host_bytes(void);
int64_t sp_host_peak(void);

/* Resident memory of the process in bytes, now and at its highest; 0: not known. */
int64_t sp_host_resident(void);
int64_t sp_host_most_resident(void);

#endif
