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

/* A plan with the programs of another, whose placement it shares. */
static inline struct sp_plan mutant_create(const struct sp_plan *whole)
{
    struct sp_plan plan = *whole;

    plan.deferred = NULL;
    plan.classes = (struct sp_op_classes){0};
    plan.order = NULL;
    plan.first_layer = NULL;
    plan.recompute = NULL;
    plan.programs = calloc((size_t)plan.layout.stages, sizeof *plan.programs);
    assert_non_null(plan.programs);
    for (int s = 0; s < plan.layout.stages; s++) {
        for (int k = 0; k < whole->programs[s].n; k++)
            sp_program_add_op(&plan.programs[s], whole->programs[s].ops[k]);
    }
    return plan;
}

static inline void mutant_destroy(struct sp_plan *plan)
{
    plan->map = NULL; /* the whole plan's */
    sp_plan_destroy(plan);
}

#endif
