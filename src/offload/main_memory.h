/*
 * StarPU's buffers in main memory where nothing leaves it. StarPU asks again for ever when one cannot be had: nothing
 * could make room, and the run would not end.
 */
#ifndef SP_MAIN_MEMORY_H
#define SP_MAIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Before StarPU starts, and after it ended. Not where GPUs are, whose buffers in main memory are pinned. */
void sp_main_memory_start(void);
void sp_main_memory_stop(void);

/*
 * After StarPU started, where it has nowhere to send what does not fit: it no longer keeps to nine tenths of what hwloc
 * knows of. That is less than there is where memory was added since the system started, as in virtual machines, and beyond
 * it StarPU would wait for ever. `pinned`: for GPUs.
 */
void sp_main_memory_uncount(bool pinned);

/*
 * For allocators of buffers: one could not be had. Ends the run with a message once it is clear that none will be: soon
 * where nothing leaves memory; where tensors leave it (`leaves`), after half a minute in which none was had or given
 * back.
 */
void sp_main_memory_failed(size_t bytes, bool leaves);
/* One was had, or given back. */
void sp_main_memory_moved(void);

#endif
