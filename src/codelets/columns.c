/*
 * Splits attention heads between devices, a tensor for each, and joins them again: columns of
 * (T,width) tensors, of both the keys and the values in a row of kv.
 *
 *   part_j(T, n) = whole(T, first_j .. first_j + n-1)
 *
 * The rows of tokens that n devices have in turns are also columns, of (T, n width).
 */
#include "codelets/insert.h"

struct columns_args {
    struct sp_task_args base;
    bool keys;
    int turns; /* the width of rows that devices have in turns; 0: heads */
};

/* The columns of part j: `n` from `first` on, in each of `segments` segments of `width` in a
 * row. */
struct columns {
    size_t segments, width, first, n;
    bool again; /* the part before it has the same columns */
};

static struct columns columns_of(const struct columns_args *a, int j)
{
    const struct sp_shape *sh = a->base.shape;
    int heads = a->keys ? sh->model.kv_heads : sh->model.heads, parts = sh->ulysses;
    int each = heads > parts ? heads / parts : 1, first = (int)((int64_t)j * heads / parts);
    size_t d = (size_t)sh->model.head_dim, turns = (size_t)a->turns;

    if (turns)
        return (struct columns){
            .segments = 1, .width = (size_t)parts * turns, .first = (size_t)j * turns, .n = turns};
    return (struct columns){.segments = a->keys ? 2 : 1,
                            .width = (size_t)heads * d,
                            .first = (size_t)first * d,
                            .n = (size_t)each * d,
                            .again = heads < parts && j % (parts / heads)};
}

/* Copies part j out of the whole, or with `back` into it. */
static void copy_part(const struct sp_backend *k, const struct columns_args *a, int j, void *whole,
                      void *part, bool back)
{
    const struct sp_shape *sh = a->base.shape;
    struct columns c = columns_of(a, j);
    size_t elem = sp_shape_elem(sh), in_whole = c.segments * c.width * elem;
    size_t in_part = c.segments * c.n * elem;

    for (size_t s = 0; s < c.segments && !(back && c.again); s++) {
        void *w = sp_skip(sh, whole, s * c.width + c.first), *p = sp_skip(sh, part, s * c.n);

        k->copy_rows(k,
                     &(struct sp_row_copy){.n = (size_t)sh->rows,
                                           .bytes = c.n * elem,
                                           .from = back ? in_part : in_whole,
                                           .to = back ? in_whole : in_part},
                     back ? p : w, back ? w : p);
    }
}

#define SPLIT_BUFFERS(ONE, OPTIONAL, LIST)                                                         \
    ONE(whole, SP_READ)  /* (T,width) */                                                           \
    LIST(part, SP_WRITE) /* = (T,n) each */
SP_BUFFERS(split, SPLIT_BUFFERS)

static void split(const struct sp_backend *k, const struct split_buffers *b,
                  const struct columns_args *a)
{
    for (int j = 0; j < b->n_part; j++)
        copy_part(k, a, j, b->whole, b->part[j], false);
}

#define JOIN_BUFFERS(ONE, OPTIONAL, LIST)                                                          \
    ONE(whole, SP_WRITE) /* = (T,width) */                                                         \
    LIST(part, SP_READ)  /* (T,n) each */
SP_BUFFERS(join, JOIN_BUFFERS)

static void join(const struct sp_backend *k, const struct join_buffers *b,
                 const struct columns_args *a)
{
    for (int j = 0; j < b->n_part; j++)
        copy_part(k, a, j, b->whole, b->part[j], true);
}

SP_CODELET(split);
SP_CODELET(join);

static void submit(const struct sp_task_context *ctx, struct sp_task *task, bool keys, int turns)
{
    struct columns_args *a = task->args;

    a->keys = keys;
    a->turns = turns;
    a->base.variant = keys + 2 * (uint32_t)turns;
    sp_task_submit(ctx, task, 0);
}

static void insert_split(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct columns_args how, struct sp_tensor *whole,
                         struct sp_tensor *const *parts)
{
    struct sp_task *task = sp_task_new(ctx, &split_cl, "split", sh, sizeof(struct columns_args));

    SP_TASK_BUFFERS(task, split, .whole = whole, .part = parts, .n_part = sh->ulysses);
    submit(ctx, task, how.keys, how.turns);
}

static void insert_join(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        struct columns_args how, struct sp_tensor *const *parts,
                        struct sp_tensor *whole)
{
    struct sp_task *task = sp_task_new(ctx, &join_cl, "join", sh, sizeof(struct columns_args));

    SP_TASK_BUFFERS(task, join, .whole = whole, .part = parts, .n_part = sh->ulysses);
    submit(ctx, task, how.keys, how.turns);
}

void sp_heads_split_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                           struct sp_tensor *whole, struct sp_tensor *const *parts)
{
    insert_split(ctx, sh, (struct columns_args){.keys = keys}, whole, parts);
}

void sp_heads_join_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                          struct sp_tensor *const *parts, struct sp_tensor *whole)
{
    insert_join(ctx, sh, (struct columns_args){.keys = keys}, parts, whole);
}

void sp_turns_split_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int width,
                           struct sp_tensor *whole, struct sp_tensor *const *parts)
{
    insert_split(ctx, sh, (struct columns_args){.turns = width}, whole, parts);
}

void sp_turns_join_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int width,
                          struct sp_tensor *const *parts, struct sp_tensor *whole)
{
    insert_join(ctx, sh, (struct columns_args){.turns = width}, parts, whole);
}
