#include "memory.h"
#include <pthread.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    struct held {
        void (*end)(void *what);
        void *what;
    } * held;
    size_t n, room;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

void test_at_end(void (*end)(void *what), void *what)
{
    pthread_mutex_lock(&memory.lock);
    if (memory.n == memory.room) {
        memory.room = 2 * memory.room + 64;
        memory.held = realloc(memory.held, memory.room * sizeof *memory.held);
        if (!memory.held)
            abort();
    }
    memory.held[memory.n++] = (struct held){end, what};
    pthread_mutex_unlock(&memory.lock);
}

static void *keep(void *block)
{
    if (!block)
        abort();
    test_at_end(free, block);
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

size_t test_held(void)
{
    return memory.n;
}

void test_end_after(size_t n)
{
    while (memory.n > n) {
        struct held last = memory.held[--memory.n];

        last.end(last.what);
    }
}
