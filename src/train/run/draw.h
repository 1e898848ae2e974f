/* Draws the next token from the logits of a model. */
#ifndef SP_DRAW_H
#define SP_DRAW_H

#include "starpipe/trainer.h"
#include <stdint.h>

/* Refuses settings that no token can be drawn with: 0, or -EINVAL after one line that begins
 * with `where`. */
int sp_sampling_check(const struct sp_sampling *how, const char *where);

/*
 * Draws one of n > 0 tokens from softmax(logits / temperature). Only the `top_k` likeliest take
 * part, and of those only the fewest that together have `top_p` of the probability. At temperature
 * 0 it is the likeliest token, the first of equals. *state is the seed at first, and each draw
 * advances it. `room` has n elements.
 */
int32_t sp_draw(const float *logits, int n, const struct sp_sampling *how, uint64_t *state,
                int32_t *room);

#endif
