/*
 * The memory that there is for processes of this machine: the smallest of physical memory, of the limits of their control
 * group on all its levels, of what the system promises, and of their own limits. Everything that asks whether something
 * fits asks here, so that a refusal can say which limit it was.
 */
#ifndef SP_HOST_MEMORY_H
#define SP_HOST_MEMORY_H

#include <stdint.h>

enum { SP_MEMORY_ORIGIN = 320 };

/* Bytes, INT64_MAX where there is no limit, and where they come from, in words ("this machine"). */
struct sp_memory_limit {
    int64_t bytes;
    char origin[SP_MEMORY_ORIGIN];
};

struct sp_host_memory {
    struct sp_memory_limit node, node_free; /* that all processes of the node share */
    struct sp_memory_limit process; /* that this one may map beside what it has mapped: ulimit */
};

/* Reads it from `root`/proc and the control groups that are mounted; `root` is "" but in tests. What cannot be read is no
 * limit. */
void sp_host_memory_read(const char *root, struct sp_host_memory *m);

/* The share of one of so many processes of this machine may take, all alike: of nine tenths of all memory, the rest
 * being for the system and for what libraries take, and of what is free. */
struct sp_memory_limit sp_host_memory_share(const struct sp_host_memory *m, int processes);
struct sp_memory_limit sp_host_memory_free_share(const struct sp_host_memory *m, int processes);

/* The same of this machine, as it is now. */
struct sp_memory_limit sp_host_memory_has(int processes);
struct sp_memory_limit sp_host_memory_has_free(int processes);

#endif
