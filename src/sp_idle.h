/*
 * Buffers that were given back and wait for the next one of their size, the oldest first. Whoever has such a list guards
 * it with a mutex, and says how much may wait.
 */
#ifndef SP_IDLE_H
#define SP_IDLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SP_MOST_IDLE = 4096 };

struct sp_idle_buffer {
    void *memory;
    size_t bytes;
    uint64_t used; /* the caller's note of its last use */
};

struct sp_idle {
    size_t bytes; /* of all */
    int n;
    struct sp_idle_buffer buffer[SP_MOST_IDLE];
};

static inline struct sp_idle_buffer sp_idle_remove(struct sp_idle *idle, int i)
{
    struct sp_idle_buffer b = idle->buffer[i];

    idle->n--;
    memmove(&idle->buffer[i], &idle->buffer[i + 1], sizeof b * (size_t)(idle->n - i));
    idle->bytes -= b.bytes;
    return b;
}

/* The oldest; there is one. */
static inline struct sp_idle_buffer sp_idle_oldest(struct sp_idle *idle)
{
    return sp_idle_remove(idle, 0);
}

/* The latest of this size, which is warm; its memory is NULL if there is none. */
static inline struct sp_idle_buffer sp_idle_take(struct sp_idle *idle, size_t bytes)
{
    for (int i = idle->n - 1; i >= 0; i--)
        if (idle->buffer[i].bytes == bytes)
            return sp_idle_remove(idle, i);
    return (struct sp_idle_buffer){0};
}

/* There are fewer than SP_MOST_IDLE. */
static inline void sp_idle_put(struct sp_idle *idle, struct sp_idle_buffer buffer)
{
    idle->buffer[idle->n++] = buffer;
    idle->bytes += buffer.bytes;
}

#endif
