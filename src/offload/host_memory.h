/*
 * The memory available to processes of this machine: the smallest of physical memory, the limits of
 * their control group on all its levels, the system's commit limit, and their own limits. Every
 * check that something fits asks here, so that a refusal can name the limit.
 */
#ifndef SP_HOST_MEMORY_H
#define SP_HOST_MEMORY_H

#include <stdint.h>

enum { SP_MEMORY_ORIGIN = 320 };

/* A limit in bytes, INT64_MAX: none, and the source of the limit in words ("this machine"). */
struct sp_memory_limit {
    int64_t bytes;
    char origin[SP_MEMORY_ORIGIN];
};

struct sp_host_memory {
    struct sp_memory_limit node, node_free; /* that all processes of the node share */
    struct sp_memory_limit process;         /* that this process may still map: ulimit */
};

/* Reads the limits from `root`/proc and the mounted control groups. `root` is "" except in tests. A
 * limit that cannot be read is none. */
void sp_host_memory_read(const char *root, struct sp_host_memory *m);

/* An equal share for each of `processes` on this machine: of nine tenths of all memory, or of the
 * free memory. The last tenth is left to the system and to libraries. */
struct sp_memory_limit sp_host_memory_share(const struct sp_host_memory *m, int processes);
struct sp_memory_limit sp_host_memory_free_share(const struct sp_host_memory *m, int processes);

/* The same, read from this machine now. */
struct sp_memory_limit sp_host_memory_has(int processes);
struct sp_memory_limit sp_host_memory_has_free(int processes);

#endif
