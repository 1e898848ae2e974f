/* The kinds of parameter blocks, and what tensors are inside them. */
#ifndef SP_BLOCK_KINDS_H
#define SP_BLOCK_KINDS_H

#include <stdbool.h>

/* In the order of the model. Per layer: NORM1, QKV, POST; the others occur once. */
enum sp_block_kind {
    SP_BLOCK_TOKENS,    /* token embedding [V, h]; with tied weights also the head's */
    SP_BLOCK_POSITIONS, /* GPT-2: position embedding [positions, h]; Llama: absent */
    SP_BLOCK_NORM1,     /* gain [h] (, bias [h]) of the norm before attention */
    SP_BLOCK_QKV, /* query [a*d, h], key [kv*d, h], value [kv*d, h] (, bias) (, gains [d] twice) */
    SP_BLOCK_POST, /* output [h, a*d] (, bias), norm2, up [f or 2f, h] (, bias), down [h, f] (, bias) */
    SP_BLOCK_NORM, /* gain (, bias) of the final norm */
    SP_BLOCK_HEAD, /* [V, h]; absent when tied */
    SP_BLOCK_KINDS
};

enum { SP_LAYER_BLOCKS = SP_BLOCK_POST - SP_BLOCK_NORM1 + 1 };

/* True for a kind that every layer has a block of; the model has one block of each other kind. */
static inline bool sp_block_is_of_layer(enum sp_block_kind kind)
{
    return kind >= SP_BLOCK_NORM1 && kind <= SP_BLOCK_POST;
}

/* The kind of the i-th block of all layers, counted from the first layer on; and its inverse. */
static inline enum sp_block_kind sp_layer_block(int i)
{
    return (enum sp_block_kind)(SP_BLOCK_NORM1 + i % SP_LAYER_BLOCKS);
}

static inline int sp_layer_block_at(enum sp_block_kind kind, int layer)
{
    return SP_LAYER_BLOCKS * layer + (int)kind - SP_BLOCK_NORM1;
}

enum sp_role {                /* what a tensor is inside its block */
               SP_ROLE_TABLE, /* token or position table, head */
               SP_ROLE_GAIN,
               SP_ROLE_BIAS, /* of NORM1, NORM, and of norm2 in POST */
               SP_ROLE_QKV,
               SP_ROLE_QKV_BIAS,
               SP_ROLE_Q_GAIN, /* of the norm of each head of queries, keys */
               SP_ROLE_K_GAIN,
               SP_ROLE_OUT,
               SP_ROLE_OUT_BIAS,
               SP_ROLE_UP,
               SP_ROLE_UP_BIAS,
               SP_ROLE_DOWN,
               SP_ROLE_DOWN_BIAS
};

enum sp_init { SP_INIT_ZERO, SP_INIT_ONE, SP_INIT_NORMAL };

#endif
