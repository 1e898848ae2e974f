/* Shared by the codelets of attention: the queries and keys of a task, the keys that a segment's
 * queries see, and sums whose parts separate tasks compute. */
#ifndef SP_ATTENTION_PARTS_H
#define SP_ATTENTION_PARTS_H

#include "codelets/insert.h"
#include "kernels/backend.h"
#include "model/documents.h"

/* ---- what a segment sees: a whole micro-batch, or a document --------------------------------- */

/* Keys and values of tokens that follow each other in every sequence: (b,len,kv); gradients too,
 * or NULL. */
struct sp_keys {
    int first, len; /* position of the first token; tokens */
    void *keys, *gradients;
};

/* Attention of the queries of a segment. */
struct sp_sight {
    struct sp_attention at;
    int len[2 * SP_MAX_SLICES];
    void *keys[2 * SP_MAX_SLICES], *gradients[2 * SP_MAX_SLICES];
};

/* ---- the arguments of a task ----------------------------------------------------------------- */

/* Tokens in a buffer of keys and values; `first` to `at` as in struct sp_attn_keys. */
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

/* The number of elements of the queries. */
size_t sp_attn_elements(const struct sp_attn_args *a);

/* Goes through the segments of a task's queries: a whole micro-batch, or documents. */
struct sp_attn_walk {
    const struct sp_documents *documents;
    struct sp_shape sh; /* the queries as a shape */
    int n;
    struct sp_keys piece[2 * SP_MAX_SLICES]; /* [n] all keys, by position */
    struct sp_segment s;
    /* of the segment */
    size_t at, elements; /* offset of its queries, and how many they are */
    size_t stats;        /* offset of its statistics, (sequences, heads, len) */
    bool sees;           /* some of the keys: */
    struct sp_sight see;
};

/* Starts before the first segment. kv NULL: positions only. */
void sp_attn_start(struct sp_attn_walk *w, const struct sp_attn_args *a, void *const *kv,
                   void *const *dkv);
/* Moves to the next segment; false: there is none. Tokens of its document that are in no buffer must
 * lie before all keys, or after all queries. */
bool sp_attn_next(struct sp_attn_walk *w);

/* Holds the sum of parts: in its result if that is f32, or in a tensor of its own. */
struct sp_attn_sum {
    void *whole; /* the result, o or dq; NULL: a later task has it */
    float *at;
    bool direct; /* the first part is computed in `whole` */
};

struct sp_attn_sum sp_attn_sum_of(const struct sp_attn_args *a, void *whole, float *apart);
/* Adds a part of n elements. */
void sp_attn_add(const struct sp_backend *k, const struct sp_attn_args *a, size_t n,
                 const void *part, float *sum);
void sp_attn_end(const struct sp_backend *k, const struct sp_attn_args *a,
                 const struct sp_attn_sum *s);

/* ---- tasks ---------------------------------------------------------------------------------- */

/* Makes the task of a part; `part` as for sp_task_new. */
struct sp_task *sp_attn_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                             const char *part, const struct sp_shape *sh, const struct sp_attn *t);

/* Keys that follow each other may share a buffer: true if keys number j begin one. */
bool sp_attn_begins_buffer(const struct sp_attn *t, int j);

/* True if o or dq is summed in f32 in a tensor of its own, because it has several parts and is
 * of another type. */
bool sp_attn_sums_apart(const struct sp_shape *sh, const struct sp_attn *t);

/* The tensors of a sum that a task adds to (whole, sum) or overwrites (new_whole, new_sum);
 * those not used are NULL. */
struct sp_attn_summed {
    struct sp_tensor *whole, *new_whole, *sum, *new_sum;
};

struct sp_attn_summed sp_attn_summed(const struct sp_shape *sh, const struct sp_attn *t,
                                     struct sp_tensor *whole);

#endif
