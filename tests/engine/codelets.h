/* Shared by the tests of codelets: a task must give the same bits as the kernels called
 * directly. */
#ifndef SP_TESTS_ENGINE_CODELETS_H
#define SP_TESTS_ENGINE_CODELETS_H

#include "engine/tensors.h"
#include "kernels/kernels.h"

enum { BATCH = 2, SEQ = 7, T = BATCH * SEQ };

/* The ways in which a forward keeps tensors for its backward. */
static const struct variant {
    bool saved, keep_outputs;
} variants[] = {{false, false}, {true, false}, {true, true}};

static inline struct sp_shape shape_of(enum small which, int mlp_rows, int head_rows)
{
    struct sp_model m = small_model(which);
    struct sp_shape sh;

    sp_shape_init(&sh, &m, BATCH, SEQ, 3);
    sp_shape_cut(&sh, mlp_rows, head_rows);
    return sh;
}

static inline struct tensor block(const struct sp_shape *sh, enum sp_block_kind kind, uint64_t seed)
{
    return random_tensor(sp_block_elements(&sh->model, kind), seed);
}

static inline float *copy(const struct tensor *t)
{
    float *x = malloc(t->n * sizeof *x);

    assert_non_null(x);
    memcpy(x, t->at, t->n * sizeof *x);
    return x;
}

static inline float *floats(size_t n)
{
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

static inline void for_each_shape(void (*fn)(const struct sp_shape *sh))
{
    static const int cuts[] = {0, 4, 5, 14, 1};

    for (int which = 0; which < SMALL_MODELS; which++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            struct sp_shape sh = shape_of((enum small)which, cuts[i], cuts[i]);

            fn(&sh);
        }
}

#endif
