/*
 * Data parallelism: D pipelines train the same weights on samples of their own. In every step each
 * stage sums its gradients with the same stage of the other pipelines.
 *
 * This is recursive doubling (Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective
 * Communication Operations in MPICH", section 4.3): in round k pipeline q exchanges all that it has
 * with q xor 2^k. Pipelines beyond the largest power of two first give their sum to a pipeline
 * below, and get the sum from it at the end. As a + b = b + a, all get the same bits.
 */
#ifndef SP_PIPELINES_H
#define SP_PIPELINES_H

#include <stdbool.h>
#include <stdint.h>

enum { SP_MAX_PIPELINES = 4096, SP_MAX_EXCHANGES = 14 };

/* One exchange of a pipeline with another one, in the order in which it makes them. */
struct sp_exchange {
    int peer;
    bool sends, receives; /* if both, it sends what it has before it adds what it receives */
    bool replaces;        /* it receives the sum of all; else it adds what it receives */
};

/* Returns how many there are, 0 if there is only one pipeline. */
int sp_pipelines_exchanges(int pipeline, int pipelines, struct sp_exchange out[SP_MAX_EXCHANGES]);

/* The part of n elements that a pipeline updates if they share the update: an even split, the
 * larger parts first. */
void sp_pipelines_part(uint64_t n, int pipeline, int pipelines, uint64_t *first, uint64_t *count);

/* How many tensors of its own size a pipeline sends for one tensor. */
int sp_pipelines_sent(int pipeline, int pipelines);

#endif
