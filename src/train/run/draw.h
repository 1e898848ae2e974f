/* The next token, from the logits of a model. */
#ifndef SP_DRAW_H
#define SP_DRAW_H

#include "starpipe/trainer.h"
#include <stdint.h>

/* Refuses what no token can be drawn by: 0, or -EINVAL after one line that begins with `where`. */
int sp_sampling_check(const struct sp_sampling *how, const char *where);

/*
 * A token of n > 0: drawn from softmax(logits / temperature) over the `top_k` likeliest, and of those over the fewest
 * that have `top_p` of the whole between them; at temperature 0 the likeliest one, of equals the first. *state, at first
 * the seed, is what the next draw goes on from. `room` has n elements.
 */
int32_t sp_draw(const float *logits, int n, const struct sp_sampling *how, uint64_t *state,
                int32_t *room);

#endif
