/* The identity of a tensor that stages send, receive or free. */
#ifndef SP_TENSOR_ID_H
#define SP_TENSOR_ID_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Rows are the tokens of a micro-batch, a slice or a part of one. `at` is a global stage if ops are
 * chunks, otherwise a layer. It is also a layer for tensors that are sent while an op runs.
 */
enum sp_tensor_kind {
    SP_TENSOR_X,   /* [rows, h] output of `at`; attention-parallel: input of layer `at` */
    SP_TENSOR_DX,  /* [rows, h] gradient of the input of `at`; attention-parallel: residual's */
    SP_TENSOR_N1,  /* [rows, h] attention-parallel: input of the QKV product */
    SP_TENSOR_DN1, /* its gradient */
    SP_TENSOR_R,   /* [rows, h] attention-parallel: residual stream after attention of layer `at` */
    SP_TENSOR_DR,  /* its gradient */
    SP_TENSOR_Q,   /* [rows, q width] */
    SP_TENSOR_DQ,  /* its gradient */
    SP_TENSOR_KV, /* [rows, kv width], of every layer of `at` if that is a global stage; aligned: of
                   * layer `at`; multiplexed: block is 1 + the stage that has a share of the rows,
                   * 0: all */
    SP_TENSOR_DKV,   /* its gradient */
    SP_TENSOR_O,     /* [rows, q width] output of attention */
    SP_TENSOR_DO,    /* its gradient */
    SP_TENSOR_LSE,   /* [rows, heads] f32, statistics of attention */
    SP_TENSOR_STATS, /* vocabulary-parallel: [rows, 2] f32, statistics of the logits of stage `at`;
                      * for each share of the tokens if devices share parameters */
    SP_TENSOR_HEAD,  /* vocabulary-parallel: [rows, h] input of the head */
    SP_TENSOR_DHEAD, /* stage `at`'s part of its gradient */
    SP_TENSOR_STASH, /* tensors that layer `at`, or part `block` (enum sp_part) of it, keeps until
                      * its backward and that are evicted meanwhile */
    SP_TENSOR_WOUT,  /* output product of attention of layer `at`: the beginning of SP_BLOCK_POST */
    SP_TENSOR_DWOUT, /* its gradient */
    SP_TENSOR_W,     /* weights of the layers of chunk `at`; -1: of embedding and head */
    SP_TENSOR_WB,    /* the same for backwards, if they travel apart from those for forwards */
    SP_TENSOR_D,     /* gradients of these weights */
    SP_TENSOR_BLOCK, /* weights of block `block` of layer `at`; multiplexed: mb is its owner */
    SP_TENSOR_GRADIENT, /* its gradient; attention-parallel: of micro-batch mb, -1: of all on a
                         * stage */
    SP_TENSOR_KINDS
};

/* A tensor without slice or block has 0 there, one without micro-batch -1. */
struct sp_tensor_id {
    unsigned char kind;   /* enum sp_tensor_kind */
    unsigned char block;  /* enum sp_block_kind; or a share of keys */
    unsigned short slice; /* slice, or part of one, as ops count them */
    int mb;
    int at;
};

static inline bool sp_tensor_is_same(const struct sp_tensor_id *a, const struct sp_tensor_id *b)
{
    return a->kind == b->kind && a->block == b->block && a->slice == b->slice && a->mb == b->mb &&
           a->at == b->at;
}

/* A number below `lists`, a power of two, that different tensors seldom share. */
static inline unsigned sp_tensor_hash(const struct sp_tensor_id *t, unsigned lists)
{
    uint64_t hash = (uint64_t)t->kind << 24 | (uint64_t)t->block << 16 | t->slice;

    hash = hash * 0x9e3779b97f4a7c15 + (uint32_t)t->mb;
    hash = hash * 0x9e3779b97f4a7c15 + (uint32_t)t->at;
    return (unsigned)(hash * 0x9e3779b97f4a7c15 >> 40) % lists;
}

#endif
