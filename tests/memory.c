#include "memory.h"
#include <pthread.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    void **blocks;
    size_t n, room;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *keep(void *block)
{
    pthread_mutex_lock(&memory.lock);
    if (memory.n == memory.room) {
        memory.room = 2 * memory.room + 64;
        memory.blocks = realloc(memory.blocks, memory.room * sizeof *memory.blocks);
    }
    if (!block || !memory.blocks)
        abort();
    memory.blocks[memory.n++] = block;
    pthread_mutex_unlock(&memory.lock);
    return block;
}

void *test_bytes(size_t bytes)
{
    return keep(malloc(bytes ? bytes : 1));
}

void *test_aligned(size_t alignment, size_t bytes)
{
    return keep(aligned_alloc(alignment, (bytes / alignment + 1) * alignment));
}

size_t test_blocks(void)
{
    return memory.n;
}

void test_free_after(size_t n)
{
    while (memory.n > n)
        free(memory.blocks[--memory.n]);
}
