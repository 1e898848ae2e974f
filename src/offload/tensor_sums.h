/*
 * With SP_CHECK=1: checksums of evicted tensors, by place: a byte of the offload file, or an
 * address. Disks and controllers that return wrong bytes do not report it.
 */
#ifndef SP_TENSOR_SUMS_H
#define SP_TENSOR_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True with SP_CHECK=1. Otherwise the functions below do nothing. */
bool sp_tensor_sums_on(void);

/* Records the checksum of bytes written to a place, and the tensor's name for messages. */
void sp_tensor_sum_note(uintptr_t place, const void *memory, size_t bytes);
void sp_tensor_sum_name(uintptr_t place, const char *name);

/* Checks bytes read from a place. True if they are those written there, or none are recorded; false
 * after one line on stderr if they differ. */
bool sp_tensor_sum_check(uintptr_t place, const void *memory, size_t bytes);

/* The name of the tensor at a place: "activations s0 m1 l2, tensor 3", or "a tensor". */
void sp_tensor_sum_words(uintptr_t place, char *out, size_t n);

/* A place: one more than the byte of the offload file, or, with fd -1, the address. */
static inline uintptr_t sp_tensor_place(int fd, long long at)
{
    return (uintptr_t)at + (fd >= 0); /* the pointer that disk.c gives StarPU: never 0 */
}

#endif
