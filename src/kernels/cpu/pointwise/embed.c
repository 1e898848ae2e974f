/*
 * Embedding: x(t,h) = table[ids[t]] + positions[pos0 + t]; a negative id is of a row that is not here, and counts as
 * a row of zeros.
 *
 * Backward: the threads share the columns and each takes the tokens in order, so a row that many
 * tokens add to is summed in one order whatever the team.
 */
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

SP_INLINE void add_rows(enum sp_dtype type, size_t h, const void *a, const void *b, void *sum)
{
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, h); i++) {
        struct sp_pair x = sp_load_step(type, a, i), y = sp_load_step(type, b, i);

        sp_store_step(type, sum, i, x.a + y.a, x.b + y.b);
    }
    if (sp_odd(type, h))
        sp_store(type, sum, h - 1, sp_load(type, a, h - 1) + sp_load(type, b, h - 1));
}

SP_CLONES static void add(enum sp_dtype type, size_t h, const void *a, const void *b, void *sum)
{
    if (type == SP_BF16)
        add_rows(SP_BF16, h, a, b, sum);
    else
        add_rows(SP_F32, h, a, b, sum);
}

void sp_embed_typed(enum sp_dtype type, int batch, int len, int h, int pos0, const int32_t *ids,
                    const void *table, const void *positions, void *x)
{
    size_t width = (size_t)h;

#pragma omp parallel for if ((size_t)batch * (size_t)len * width > SP_TEAM_WORTH)
    for (int r = 0; r < batch * len; r++) {
        bool here = ids[r] >= 0;
        const void *token = here ? sp_from(type, table, (size_t)ids[r] * width) : NULL;
        const void *position =
            positions ? sp_from(type, positions, (size_t)(pos0 + r % len) * width) : NULL;
        void *to = sp_to(type, x, (size_t)r * width);

        if (here && position)
            add(type, width, token, position, to);
        else if (here || position)
            memcpy(to, here ? token : position, width * sp_dtype_bytes(type));
        else
            memset(to, 0, width * sp_dtype_bytes(type));
    }
}

SP_INLINE void add_to(enum sp_dtype type, size_t n, const void *row, float *to)
{
#pragma omp simd
    for (size_t j = 0; j < n; j++)
        to[j] += sp_load(type, row, j);
}

/* Columns of all rows: row r of dx to row ids[r] of the table, if it is there, and to position r % len if not
 * NULL. */
SP_INLINE void scatter_rows(enum sp_dtype type, size_t rows, size_t n, size_t ld, size_t len,
                            const int32_t *ids, const void *dx, float *table, float *positions)
{
    enum { CHUNK = 256 };

    for (size_t r = 0; r < rows; r++) {
        int32_t id = ids[r], after = ids[r + 1 < rows ? r + 1 : r];
        float *token = table + (size_t)(id < 0 ? 0 : id) * ld;
        float *next = table + (size_t)(after < 0 ? 0 : after) * ld;

        for (size_t j = 0; j < n; j += CHUNK) {
            const void *from = sp_from(type, dx, r * ld + j);
            size_t m = n - j < CHUNK ? n - j : CHUNK;

            sp_prefetch(next + j, m * sizeof *next);
            if (id >= 0)
                add_to(type, m, from, token + j);
            if (positions)
                add_to(type, m, from, positions + r % len * ld + j);
        }
    }
}

SP_CLONES static void scatter(enum sp_dtype type, size_t rows, size_t n, size_t ld, size_t len,
                              const int32_t *ids, const void *dx, float *table, float *positions)
{
    if (type == SP_BF16)
        scatter_rows(SP_BF16, rows, n, ld, len, ids, dx, table, positions);
    else
        scatter_rows(SP_F32, rows, n, ld, len, ids, dx, table, positions);
}

void sp_embed_bwd_typed(enum sp_dtype type, int batch, int len, int h, int pos0, const int32_t *ids,
                        const void *dx, float *dtable, float *dpositions)
{
    size_t width = (size_t)h, rows = (size_t)batch * (size_t)len;

#pragma omp parallel if (rows * width > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(width, 32, &lo, &hi);
        if (lo < hi)
            scatter(type, rows, hi - lo, width, (size_t)len, ids, sp_from(type, dx, lo),
                    dtable + lo, dpositions ? dpositions + (size_t)pos0 * width + lo : NULL);
    }
}

void sp_embed(int batch, int len, int h, int pos0, const int32_t *ids, const float *table,
              const float *positions, float *x)
{
    sp_embed_typed(SP_F32, batch, len, h, pos0, ids, table, positions, x);
}

void sp_embed_bwd(int batch, int len, int h, int pos0, const int32_t *ids, const float *dx,
                  float *dtable, float *dpositions)
{
    sp_embed_bwd_typed(SP_F32, batch, len, h, pos0, ids, dx, dtable, dpositions);
}
