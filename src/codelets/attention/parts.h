/* What the codelets of attention share: the queries and keys of a task, and sums of parts that tasks of their own
 * compute. */
#ifndef SP_ATTENTION_PARTS_H
#define SP_ATTENTION_PARTS_H

#include "codelets/attention/sight.h"
#include "codelets/insert.h"

/* Tokens of a buffer of keys and values, as struct sp_attn_keys has them. */
struct sp_attn_keys_arg {
    int first, second, len, buffer;
    size_t at;
};

struct sp_attn_args {
    struct sp_task_args base;
    int q_len, q_pos, q_second;
    bool begins, ends;
    int n;
    struct sp_attn_keys_arg keys[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

/* The queries, as a shape has tokens; elements of them. */
struct sp_shape sp_attn_queries(const struct sp_attn_args *a);
size_t sp_attn_elements(const struct sp_attn_args *a);

/* Where the tokens of all buffers are, by their positions; how many runs of them. NULL: their positions alone. */
int sp_attn_pieces(const struct sp_attn_args *a, void *const *kv, void *const *dkv,
                   struct sp_keys *piece);

/* Where the sum of parts is: in what it becomes, or, where that has no room for f32, apart. */
struct sp_attn_sum {
    void *whole; /* what it becomes; NULL: not yet */
    float *at;
    bool direct; /* the first part is computed where it stays */
};

struct sp_attn_sum sp_attn_sum_of(const struct sp_attn_args *a, void *whole, float *apart);
/* Of n elements. */
void sp_attn_add(const struct sp_backend *k, const struct sp_attn_args *a, size_t n,
                 const void *part, float *sum);
void sp_attn_end(const struct sp_backend *k, const struct sp_attn_args *a,
                 const struct sp_attn_sum *s);

/* ---- tasks ---------------------------------------------------------------------------------- */

/* `part` as sp_task_new takes it. */
struct sp_task *sp_attn_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                             const char *part, const struct sp_shape *sh, const struct sp_attn *t);

/* Keys that follow each other may share a buffer: whether those number j begin one. */
bool sp_attn_begins_buffer(const struct sp_attn *t, int j);

/* Whether o or dq is summed up apart, and has what is made by this part. */
bool sp_attn_sums_apart(const struct sp_shape *sh, const struct sp_attn *t);

/* The handles of what a task sums up, of which one was and the others are NULL. */
struct sp_attn_summed {
    struct sp_tensor *whole, *new_whole, *sum, *new_sum;
};

struct sp_attn_summed sp_attn_summed(const struct sp_shape *sh, const struct sp_attn *t,
                                     struct sp_tensor *whole);

#endif
