/* The free space of a file that holds tensors of many sizes: first fit. Pure. */
#ifndef SP_FILE_SPACE_H
#define SP_FILE_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sp_gap {
    off_t at;
    size_t bytes;
};

/* All zeros: an empty file. */
struct sp_file_space {
    struct sp_gap *gaps; /* by place, no two of them touch */
    int n, cap;
    off_t end;
};

/* Takes room from the first gap that has it; otherwise from the end on, and *grows is set. */
off_t sp_file_space_take(struct sp_file_space *f, size_t bytes, bool *grows);

/* Gives room back, joining neighbours. 0 or -ENOMEM. */
int sp_file_space_give(struct sp_file_space *f, off_t at, size_t bytes);

#endif
