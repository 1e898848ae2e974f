/*
 * By which angle rotary positions turn a pair of elements, and how models that were trained on
 * shorter sequences stretch these angles.
 */
#ifndef SP_ROPE_H
#define SP_ROPE_H

enum sp_rope_type { SP_ROPE_DEFAULT, SP_ROPE_LINEAR, SP_ROPE_LLAMA3 };

struct sp_rope {
    float theta;
    enum sp_rope_type type;
    float factor;    /* LINEAR, LLAMA3: angles are divided by it, */
    float low, high; /* LLAMA3: in full for pairs that turn less than `low` times in */
    int original;    /* `original` positions, not at all for more than `high` times */
};

/*
 * turns(d/2) = what pair i of a head of size d turns from a position to the next, in whole turns:
 * 1 / (2 pi theta^(2i/d)), stretched.
 */
#ifdef __cplusplus
extern "C"
#endif
    void
    sp_rope_turns(const struct sp_rope *rope, int d, double *turns);

#endif
