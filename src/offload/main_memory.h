/*
 * StarPU's buffers in main memory for runs that evict nothing. When an allocation fails, StarPU
 * retries for ever. Nothing could make room, so the run would not end.
 */
#ifndef SP_MAIN_MEMORY_H
#define SP_MAIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Call before StarPU starts, and after it ended. Not for runs with GPUs: their buffers are
 * pinned. */
void sp_main_memory_start(void);
void sp_main_memory_stop(void);

/*
 * Call after StarPU started, if there is no tier to evict to: lifts StarPU's limit of nine tenths
 * of the memory that hwloc reports. Virtual machines may have memory added since they started,
 * which hwloc does not report; at its limit StarPU would wait for ever. `pinned`: the buffers are
 * pinned for GPUs.
 */
void sp_main_memory_uncount(bool pinned);

/*
 * Allocators of buffers call this when an allocation failed. It ends the run with a message once it
 * is clear that none will succeed: soon if nothing is evicted; if tensors are (`leaves`), after
 * half a minute in which no buffer was allocated or freed.
 */
void sp_main_memory_failed(size_t bytes, bool leaves);
/* Call when a buffer was allocated or freed. */
void sp_main_memory_moved(void);

#endif
