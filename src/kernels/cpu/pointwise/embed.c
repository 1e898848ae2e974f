/*
 * Embedding: x(t,h) = table[ids[t]] + positions[pos0 + t (1 + skip)]; a row that is not here, of a negative id or a position
 * before or behind those of the table, counts as a row of zeros.
 *
 * Backward: the threads share the columns and each takes the tokens in order, so a row that many
 * tokens add to is summed in one order whatever the team.
 */
#include "kernels/cpu/cpu.h"
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

SP_CLONES static void add_typed_rows(enum sp_dtype type, size_t h, const void *a, const void *b,
                                     void *sum)
{
    if (type == SP_BF16)
        add_rows(SP_BF16, h, a, b, sum);
    else
        add_rows(SP_F32, h, a, b, sum);
}

void sp_cpu_embed(const struct sp_backend *k, const struct sp_embed *e, const void *table,
                  const void *positions, void *x)
{
    enum sp_dtype type = k->dtype;
    const int32_t *ids = e->ids;
    size_t width = (size_t)e->h;
    int first, end;

    sp_embed_here(e, &first, &end);
#pragma omp parallel for if ((size_t)e->batch * (size_t)e->len * width > SP_TEAM_WORTH)
    for (int r = 0; r < e->batch * e->len; r++) {
        int t = r % e->len;
        bool here = ids[r] >= 0, placed = positions && t >= first && t < end;
        const void *token = here ? sp_from(type, table, (size_t)ids[r] * width) : NULL;
        const void *position =
            placed ? sp_from(type, positions, (size_t)sp_embed_position(e, t) * width) : NULL;
        void *to = sp_to(type, x, (size_t)r * width);

        if (here && position)
            add_typed_rows(type, width, token, position, to);
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

/* n columns of all rows; arrays begin at the first of them, and their rows are ld apart. */
struct columns {
    size_t rows, n, ld, len;
    size_t step;       /* between the positions of two tokens */
    size_t first, end; /* the tokens of a sequence whose positions are here */
    const int32_t *ids;
    const void *dx;
    float *table, *positions; /* position of token `first`; may be NULL */
};

/* Adds row r of dx to row ids[r] of the table and to position r % len, if they are there. */
SP_INLINE void scatter_rows(enum sp_dtype type, const struct columns c)
{
    enum { CHUNK = 256 };

    for (size_t r = 0; r < c.rows; r++) {
        int32_t id = c.ids[r], after = c.ids[r + 1 < c.rows ? r + 1 : r];
        size_t t = r % c.len;
        float *token = c.table + (size_t)(id < 0 ? 0 : id) * c.ld;
        float *next = c.table + (size_t)(after < 0 ? 0 : after) * c.ld;

        for (size_t j = 0; j < c.n; j += CHUNK) {
            const void *from = sp_from(type, c.dx, r * c.ld + j);
            size_t m = c.n - j < CHUNK ? c.n - j : CHUNK;

            sp_prefetch(next + j, m * sizeof *next);
            if (id >= 0)
                add_to(type, m, from, token + j);
            if (c.positions && t >= c.first && t < c.end)
                add_to(type, m, from, c.positions + (t - c.first) * c.step * c.ld + j);
        }
    }
}

SP_CLONES static void scatter(enum sp_dtype type, const struct columns c)
{
    if (type == SP_BF16)
        scatter_rows(SP_BF16, c);
    else
        scatter_rows(SP_F32, c);
}

void sp_cpu_embed_bwd(const struct sp_backend *k, const struct sp_embed *e, const void *dx,
                      float *dtable, float *dpositions)
{
    enum sp_dtype type = k->dtype;
    size_t width = (size_t)e->h, rows = (size_t)e->batch * (size_t)e->len;
    int first, end;

    sp_embed_here(e, &first, &end);
    if (first >= end)
        dpositions = NULL;
#pragma omp parallel if (rows * width > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(width, 32, &lo, &hi);
        if (lo < hi)
            scatter(type, (struct columns){
                              .rows = rows,
                              .n = hi - lo,
                              .ld = width,
                              .len = (size_t)e->len,
                              .step = (size_t)(1 + e->skip),
                              .first = (size_t)first,
                              .end = (size_t)end,
                              .ids = e->ids,
                              .dx = sp_from(type, dx, lo),
                              .table = dtable + lo,
                              .positions =
                                  dpositions ? dpositions +
                                                   (size_t)sp_embed_position(e, first) * width + lo
                                             : NULL});
    }
}

void sp_embed(const struct sp_embed *e, const float *table, const float *positions, float *x)
{
    sp_cpu_embed(sp_cpu_backend(SP_F32), e, table, positions, x);
}

void sp_embed_bwd(const struct sp_embed *e, const float *dx, float *dtable, float *dpositions)
{
    sp_cpu_embed_bwd(sp_cpu_backend(SP_F32), e, dx, dtable, dpositions);
}
