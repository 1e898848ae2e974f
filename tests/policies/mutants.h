/* How the tests of the verifier break programs. */
#ifndef SP_TESTS_MUTANTS_H
#define SP_TESTS_MUTANTS_H

#include "policies/common.h"

static uint32_t seed; /* of pick: each test sets its own */

static inline int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

/* Another value below n, or the only one. */
static inline int another(int value, int n)
{
    return n > 1 ? (value + 1 + pick(n - 1)) % n : value;
}

static inline void insert(struct sp_program *prog, int at, struct sp_op op)
{
    sp_program_add_op(prog, op);
    memmove(prog->ops + at + 1, prog->ops + at, (size_t)(prog->n - at - 1) * sizeof op);
    prog->ops[at] = op;
}

static inline struct sp_op take(struct sp_program *prog, int at)
{
    struct sp_op op = prog->ops[at];

    memmove(prog->ops + at, prog->ops + at + 1, (size_t)(prog->n - at - 1) * sizeof op);
    prog->n--;
    return op;
}

static inline void swap(struct sp_program *prog, int j, int k)
{
    struct sp_op op = prog->ops[j];

    prog->ops[j] = prog->ops[k];
    prog->ops[k] = op;
}

#endif
