/* Memory that tests need not free: all of it is freed when a TEST ends, however it ends. */
#ifndef SP_TESTS_MEMORY_H
#define SP_TESTS_MEMORY_H

#include <stddef.h>

/* A block; never NULL. The threads of a test may call this. */
void *test_bytes(size_t bytes);
void *test_aligned(size_t alignment, size_t bytes);

/* How many blocks there are; frees those after the first n, for a test that needs many. */
size_t test_blocks(void);
void test_free_after(size_t n);

#endif
