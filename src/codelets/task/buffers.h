/*
 * Names the buffers of a codelet. A table has a row for each, in the order in which a sink gets
 * them; a comment says the shape, and for outputs whether the task writes (=) or adds (+=):
 *
 *   #define EXAMPLE_BUFFERS(ONE, OPTIONAL, LIST)
 *       ONE(x, SP_READ)           (T,h)
 *       OPTIONAL(y, SP_WRITE)      = (T,h)
 *       LIST(kv, SP_READ)         [n_kv] (b,kv_len[j],kv)
 *   SP_BUFFERS(example, EXAMPLE_BUFFERS)
 *
 * SP_BUFFERS declares two structs. The body gets struct example_buffers: pointers x, y and
 * kv[n_kv], with their sizes in bytes. The insert fills in struct example_tensors by name:
 *
 *   SP_TASK_BUFFERS(task, example, .x = x, .y = y, .kv = kv, .n_kv = n);
 *
 * An optional tensor that is NULL, or not given, leaves its buffer out of the task, and the body
 * finds NULL; a list has at most SP_MAX_SLICES buffers, and none if it is not given. A missing
 * tensor that is not optional ends the run.
 */
#ifndef SP_BUFFERS_H
#define SP_BUFFERS_H

#include "model/stash.h"
#include "sinks/tensor.h"

struct sp_task;

enum { SP_BUFFERS_MAX = 12 }; /* rows of a table */

#define SP_BUFFERS(op, ROWS)                                                                       \
    struct op##_buffers {                                                                          \
        ROWS(SP_BUFFER_AT, SP_BUFFER_AT, SP_BUFFERS_AT)                                            \
    };                                                                                             \
    struct op##_tensors {                                                                          \
        ROWS(SP_BUFFER_TENSOR, SP_BUFFER_TENSOR, SP_BUFFERS_TENSORS)                               \
    };                                                                                             \
    _Static_assert(ROWS(SP_BUFFER_COUNT, SP_BUFFER_COUNT, SP_BUFFER_COUNT) 0 <= SP_BUFFERS_MAX,    \
                   "more rows than a task's args count");                                          \
    static void op##_buffers_read(struct op##_buffers *b, void *const *at, const size_t *bytes,    \
                                  const uint16_t *n)                                               \
    {                                                                                              \
        ROWS(SP_BUFFER_READ, SP_BUFFER_READ, SP_BUFFERS_READ)                                      \
    }                                                                                              \
    static void op##_buffers_add(struct sp_task *task, const struct op##_tensors *h)               \
    {                                                                                              \
        int row = 0;                                                                               \
                                                                                                   \
        ROWS(SP_BUFFER_ADD, SP_BUFFER_ADD_OPTIONAL, SP_BUFFERS_ADD)                                \
    }

#define SP_TASK_BUFFERS(task, op, ...)                                                             \
    op##_buffers_add(task, &(const struct op##_tensors){__VA_ARGS__})

/* A row's expansion in each part of SP_BUFFERS: SP_BUFFER_ for one buffer, SP_BUFFERS_ for a
 * list. */
#define SP_BUFFER_AT(name, mode)                                                                   \
    void *name;                                                                                    \
    size_t name##_bytes;
#define SP_BUFFERS_AT(name, mode)                                                                  \
    int n_##name;                                                                                  \
    void *name[SP_MAX_SLICES];                                                                     \
    size_t name##_bytes[SP_MAX_SLICES];

#define SP_BUFFER_TENSOR(name, mode) struct sp_tensor *name;
#define SP_BUFFERS_TENSORS(name, mode)                                                             \
    int n_##name;                                                                                  \
    struct sp_tensor *const *name;

#define SP_BUFFER_COUNT(name, mode) 1 +

#define SP_BUFFER_READ(name, mode) sp_buffers_read(&at, &bytes, *n++, &b->name, &b->name##_bytes);
#define SP_BUFFERS_READ(name, mode)                                                                \
    b->n_##name = *n++;                                                                            \
    sp_buffers_read(&at, &bytes, b->n_##name, b->name, b->name##_bytes);

#define SP_BUFFER_ADD(name, mode) sp_buffers_add(task, row++, #name, 1, &h->name, mode);
#define SP_BUFFER_ADD_OPTIONAL(name, mode)                                                         \
    sp_buffers_add(task, row++, #name, h->name != NULL, &h->name, mode);
#define SP_BUFFERS_ADD(name, mode) sp_buffers_add(task, row++, #name, h->n_##name, h->name, mode);

/* Appends the n buffers of a row of the table. If one is NULL, the run ends here. */
void sp_buffers_add(struct sp_task *task, int row, const char *name, int n,
                    struct sp_tensor *const *tensors, enum sp_access access);

/* Reads the next n buffers of a task and their sizes in bytes; moves *at and *bytes past them. */
void sp_buffers_read(void *const **at, const size_t **bytes, int n, void **to, size_t *to_bytes);

#endif
