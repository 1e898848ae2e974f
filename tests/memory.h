/* A test need not free these: they go when a TEST ends, however it ends, the latest first. */
#ifndef SP_TESTS_MEMORY_H
#define SP_TESTS_MEMORY_H

#include <stddef.h>

/* Memory; never NULL. The threads of a test may call these. */
void *test_bytes(size_t bytes);
void *test_aligned(size_t alignment, size_t bytes);

/* Calls end(what) when the test ends. */
void test_at_end(void (*end)(void *what), void *what);

/* How much there is that ends with the test; ends what is after the first n, for a test that needs much. */
size_t test_held(void);
void test_end_after(size_t n);

#endif
