/* Addresses for tensors of simulated runs, which no task reads or writes. */
#ifndef SP_SIMULATED_MEMORY_H
#define SP_SIMULATED_MEMORY_H

#include <stddef.h>

/*
 * Returns an address for a tensor of `bytes`, inside one range that takes memory only for the pages
 * that are written, such as the few numbers that the main program clears. When all addresses are
 * used, it starts again from the first. NULL: the system has no range large enough.
 */
void *sp_simulated_memory(size_t bytes);

#endif
