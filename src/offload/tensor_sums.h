/*
 * With SP_CHECK=1: checksums of tensors that are away, by the place where they are: a byte of the offload file, or an
 * address. Disks and controllers that give back other bytes than they were given say nothing of it.
 */
#ifndef SP_TENSOR_SUMS_H
#define SP_TENSOR_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether there are any; the rest does nothing otherwise. */
bool sp_tensor_sums_on(void);

/* These bytes go to a place; what they are, for messages: kept until others go there. */
void sp_tensor_sum_note(uintptr_t place, const void *memory, size_t bytes);
void sp_tensor_sum_name(uintptr_t place, const char *name);

/* These came back from there: as they left, or not known. False after one line on stderr: they are others. */
bool sp_tensor_sum_check(uintptr_t place, const void *memory, size_t bytes);

/* What is at a place: "activations s0 m1 l2, tensor 3", or "a tensor". */
void sp_tensor_sum_words(uintptr_t place, char *out, size_t n);

/* Of the places of the offload file; addresses are their own. */
static inline uintptr_t sp_tensor_place(int fd, long long at)
{
    return (uintptr_t)at + (fd >= 0); /* as StarPU has them */
}

#endif
