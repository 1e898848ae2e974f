/*
 * The buffers of a codelet by name. A table has a row for each, in the order in which StarPU gets
 * them; a comment says the shape, and for outputs whether the task writes (=) or adds (+=):
 *
 *   #define EXAMPLE_BUFFERS(ONE, OPTIONAL, LIST)
 *       ONE(x, STARPU_R)           (T,h)
 *       OPTIONAL(y, STARPU_W)      = (T,h)
 *       LIST(kv, STARPU_R)         [n_kv] (b,kv_len[j],kv)
 *   SP_BUFFERS(example, EXAMPLE_BUFFERS)
 *
 * SP_BUFFERS declares struct example_buffers, which the body gets: pointers x, y and kv[n_kv], with
 * their sizes in bytes. And struct example_handles, which the insert fills in by name:
 *
 *   SP_TASK_BUFFERS(task, example, .x = x, .y = y, .kv = kv, .n_kv = n);
 *
 * An optional handle that is NULL, or not given, leaves its buffer out of the task, and the body finds
 * NULL; a list has at most SP_MAX_SLICES buffers, and none if it is not given. Where a handle that is
 * not optional is missing, the run ends.
 */
#ifndef SP_BUFFERS_H
#define SP_BUFFERS_H

#include "model/stash.h"
#include <starpu.h>

enum { SP_BUFFERS_MAX = 12 }; /* rows of a table */

#define SP_BUFFERS(op, ROWS)                                                                       \
    struct op##_buffers {                                                                          \
        ROWS(SP_BUFFER_AT, SP_BUFFER_AT, SP_BUFFERS_AT)                                            \
    };                                                                                             \
    struct op##_handles {                                                                          \
        ROWS(SP_BUFFER_HANDLE, SP_BUFFER_HANDLE, SP_BUFFERS_HANDLES)                               \
    };                                                                                             \
    _Static_assert(ROWS(SP_BUFFER_COUNT, SP_BUFFER_COUNT, SP_BUFFER_COUNT) 0 <= SP_BUFFERS_MAX,    \
                   "more rows than a task's args count");                                          \
    static void op##_buffers_read(struct op##_buffers *b, void *buffers[], const uint16_t *n)      \
    {                                                                                              \
        ROWS(SP_BUFFER_READ, SP_BUFFER_READ, SP_BUFFERS_READ)                                      \
    }                                                                                              \
    static void op##_buffers_add(struct starpu_task *task, const struct op##_handles *h)           \
    {                                                                                              \
        int row = 0;                                                                               \
                                                                                                   \
        ROWS(SP_BUFFER_ADD, SP_BUFFER_ADD_OPTIONAL, SP_BUFFERS_ADD)                                \
    }

#define SP_TASK_BUFFERS(task, op, ...)                                                             \
    op##_buffers_add(task, &(const struct op##_handles){__VA_ARGS__})

/* What a row becomes in each part of SP_BUFFERS: SP_BUFFER_ for one buffer, SP_BUFFERS_ for a list. */
#define SP_BUFFER_AT(name, mode)                                                                   \
    void *name;                                                                                    \
    size_t name##_bytes;
#define SP_BUFFERS_AT(name, mode)                                                                  \
    int n_##name;                                                                                  \
    void *name[SP_MAX_SLICES];                                                                     \
    size_t name##_bytes[SP_MAX_SLICES];

#define SP_BUFFER_HANDLE(name, mode) starpu_data_handle_t name;
#define SP_BUFFERS_HANDLES(name, mode)                                                             \
    int n_##name;                                                                                  \
    const starpu_data_handle_t *name;

#define SP_BUFFER_COUNT(name, mode) 1 +

#define SP_BUFFER_READ(name, mode)                                                                 \
    buffers += sp_buffers_read(buffers, *n++, &b->name, &b->name##_bytes);
#define SP_BUFFERS_READ(name, mode)                                                                \
    b->n_##name = *n++;                                                                            \
    buffers += sp_buffers_read(buffers, b->n_##name, b->name, b->name##_bytes);

#define SP_BUFFER_ADD(name, mode) sp_buffers_add(task, row++, #name, 1, &h->name, mode);
#define SP_BUFFER_ADD_OPTIONAL(name, mode)                                                         \
    sp_buffers_add(task, row++, #name, h->name != NULL, &h->name, mode);
#define SP_BUFFERS_ADD(name, mode) sp_buffers_add(task, row++, #name, h->n_##name, h->name, mode);

/* Appends the n buffers of a row of the table. None may be NULL: the run would end here. */
void sp_buffers_add(struct starpu_task *task, int row, const char *name, int n,
                    const starpu_data_handle_t *handles, enum starpu_data_access_mode mode);

/* Where the first n of StarPU's buffers are, and their sizes in bytes. Returns n. */
int sp_buffers_read(void *const *buffers, int n, void **at, size_t *bytes);

#endif
