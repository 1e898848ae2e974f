/* Addresses for tensors of simulated runs, which nobody reads or writes. */
#ifndef SP_SIMULATED_MEMORY_H
#define SP_SIMULATED_MEMORY_H

#include <stddef.h>

/*
 * Where a tensor of so many bytes may be registered: inside one range of addresses that takes memory only
 * where it is written, as the few numbers that the main program clears are. Ranges that were given
 * come again when all addresses were. NULL: the system has no range large enough.
 */
void *sp_simulated_memory(size_t bytes);

#endif
