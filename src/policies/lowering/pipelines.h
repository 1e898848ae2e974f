/*
 * Data parallelism: D pipelines train the same weights on samples of their own, and sum their gradients in
 * every step, each stage with the same stage of the other pipelines.
 *
 * By recursive doubling (Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication
 * Operations in MPICH", section 4.3): in round k pipeline q exchanges all that it has with q xor 2^k. Those
 * beyond the largest power of two give theirs to a pipeline below first, and get the sum from it at last.
 * As a + b = b + a, all come to the same bits.
 */
#ifndef SP_PIPELINES_H
#define SP_PIPELINES_H

#include <stdbool.h>
#include <stdint.h>

enum { SP_MAX_PIPELINES = 4096, SP_MAX_EXCHANGES = 14 };

/* What a pipeline does with another one, in the order in which it does it. */
struct sp_exchange {
    int peer;
    bool sends, receives; /* of both, what is sent is from before what is received is added */
    bool replaces;        /* what is received is the sum of all; else it is added */
};

/* Returns how many there are, none for one pipeline of one. */
int sp_pipelines_exchanges(int pipeline, int pipelines, struct sp_exchange out[SP_MAX_EXCHANGES]);

/* The part of n elements that a pipeline updates where they share the update out: as even as can be, the larger
 * ones first. */
void sp_pipelines_part(uint64_t n, int pipeline, int pipelines, uint64_t *first, uint64_t *count);

/* Tensors of its own size that a pipeline sends for one tensor. */
int sp_pipelines_sent(int pipeline, int pipelines);

#endif
