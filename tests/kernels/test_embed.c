/* Embedding and its gradient. */
#include "reference.h"

static void shape(int batch, int len, int h, int pos0, int V)
{
    int rows = batch * len;
    size_t n = (size_t)rows * (size_t)h, n_table = (size_t)V * (size_t)h;
    size_t n_pos = (size_t)(pos0 + len + 2) * (size_t)h;
    float *table = new_random(n_table, 1), *pos = new_random(n_pos, 2), *x = new_nan(n);
    float *dx = new_random(n, 3), *dtable = new_random(n_table, 4), *dpos = new_random(n_pos, 5);
    float *dtable2 = new_copy(n_table, dtable);
    int32_t *ids = test_bytes((size_t)rows * sizeof *ids);
    double *want = new_double(n, NULL), *want_t = new_double(n_table, dtable);
    double *want_p = new_double(n_pos, dpos);
    const struct sp_embed e = {.batch = batch, .len = len, .h = h, .pos0 = pos0, .ids = ids};

    /* Few distinct tokens, so that many rows meet. */
    for (int r = 0; r < rows; r++)
        ids[r] = (r * r * 7 + 3 * r) % V;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < h; j++) {
            int at = ids[r] * h + j, p = (pos0 + r % len) * h + j;

            want[r * h + j] = (double)table[at] + (double)pos[p];
            want_t[at] += (double)dx[r * h + j];
            want_p[p] += (double)dx[r * h + j];
        }
    sp_embed(&e, table, pos, x);
    assert_close("embed", n, x, want, 1e-7);
    sp_embed_bwd(&e, dx, dtable, dpos);
    assert_close("dtable +=", n_table, dtable, want_t, TOLERANCE);
    assert_close("dpositions +=", n_pos, dpos, want_p, TOLERANCE);
    omp_set_num_threads(1);
    sp_embed_bwd(&e, dx, dtable2, NULL);
    omp_set_num_threads(2);
    assert_same_bits(n_table, dtable, dtable2);

    memset(x, 0xff, n * sizeof *x);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < h; j++)
            want[r * h + j] = (double)table[ids[r] * h + j];
    sp_embed(&e, table, NULL, x);
    assert_close("embed without positions", n, x, want, 0);
}

/* Tables in two parts, whose ids are -1 where a row is in the other: the sum of both is the whole. */
static void parts(int batch, int len, int h, int V, bool positions)
{
    int rows = batch * len, cut = V / 3, place = (len + 2) / 3; /* positions of the first part */
    size_t n = (size_t)rows * (size_t)h, n_table = (size_t)V * (size_t)h;
    size_t n_pos = (size_t)len * (size_t)h;
    float *table = new_random(n_table, 1), *pos = new_random(n_pos, 2);
    float *dpos = new_random(n_pos, 5), *want_pos = new_copy(n_pos, dpos);
    float *dx = new_random(n, 3), *want = new_nan(n), *x[2] = {new_nan(n), new_nan(n)};
    float *dtable = new_random(n_table, 4), *want_table = new_copy(n_table, dtable);
    int32_t *ids = test_bytes((size_t)rows * sizeof *ids),
            *here = test_bytes((size_t)rows * sizeof *here);

    for (int r = 0; r < rows; r++)
        ids[r] = (r * r * 7 + 3 * r) % V;
    sp_embed(&(struct sp_embed){.batch = batch, .len = len, .h = h, .ids = ids}, table,
             positions ? pos : NULL, want);
    sp_embed_bwd(&(struct sp_embed){.batch = batch, .len = len, .h = h, .ids = ids}, dx, want_table,
                 want_pos);
    for (int part = 0; part < 2; part++) {
        size_t at = part ? (size_t)cut * (size_t)h : 0, to = part ? (size_t)(place * h) : 0;
        const struct sp_embed e = {.batch = batch,
                                   .len = len,
                                   .h = h,
                                   .pos0 = part ? -place : 0,
                                   .here = part ? len - place : place,
                                   .ids = here};

        for (int r = 0; r < rows; r++)
            here[r] = (ids[r] >= cut) == part ? ids[r] - part * cut : -1;
        sp_embed(&e, table + at, positions ? pos + to : NULL, x[part]);
        sp_embed_bwd(&e, dx, dtable + at, dpos + to);
    }
    sp_add(n, x[0], x[1]);
    for (size_t i = 0; i < n; i++)
        assert_true(x[1][i] == want[i]); /* each term is exact, or 0 */
    assert_same_bits(n_table, dtable, want_table);
    assert_same_bits(n_pos, dpos, want_pos);
}

/* A sequence whose rows come in `n` turns, and of whose positions the table may have a part. */
static void turns(struct sp_embed e, int n, int V)
{
    int rows = e.batch * e.len, end = e.here ? e.here : e.pos0 + e.len;
    size_t h = (size_t)e.h, n_pos = (size_t)end * h;
    float *table = new_random((size_t)V * h, 1), *pos = new_random(n_pos, 2);
    float *dx = new_random((size_t)rows * h, 3), *x = new_nan((size_t)rows * h);
    float *dtable = new_random((size_t)V * h, 4), *dpos = new_random(n_pos, 5);
    float *got = new_nan((size_t)rows * h), *from = new_nan((size_t)rows * h);
    float *dpos_of = new_copy(n_pos, dpos);
    int32_t *ids = test_bytes((size_t)rows * sizeof *ids),
            *of = test_bytes((size_t)rows * sizeof *of);

    for (int r = 0; r < rows; r++)
        ids[r] = (r * r * 7 + 3 * r) % V;
    e.ids = ids;
    sp_embed(&e, table, pos, x);
    sp_embed_bwd(&e, dx, dtable, dpos);
    e.ids = of;
    e.skip = n - 1;
    for (int k = 0, len = e.len, pos0 = e.pos0; k < n; k++) {
        e.len = (len - k + n - 1) / n;
        e.pos0 = pos0 + k;
        for (int r = 0; r < e.batch * e.len; r++) {
            int whole = r / e.len * len + k + r % e.len * n;

            of[r] = ids[whole];
            memcpy(from + (size_t)r * h, dx + (size_t)whole * h, h * sizeof *dx);
        }
        sp_embed(&e, table, pos, got);
        sp_embed_bwd(&e, from, dtable, dpos_of);
        for (int r = 0; r < e.batch * e.len; r++)
            assert_same_bits(h, got + (size_t)r * h,
                             x + (size_t)(r / e.len * len + k + r % e.len * n) * h);
    }
    assert_same_bits(n_pos, dpos_of, dpos);
}

TEST(turns)
{
    turns((struct sp_embed){.batch = 2, .len = 23, .h = 24}, 4, 11);
    turns((struct sp_embed){.batch = 3, .len = 17, .h = 10, .pos0 = 5}, 3, 6);
    turns((struct sp_embed){.batch = 2, .len = 23, .h = 16, .pos0 = -7, .here = 9}, 4, 11);
    turns((struct sp_embed){.batch = 1, .len = 23, .h = 16, .pos0 = 4, .here = 9}, 2, 11);
}

TEST(parts)
{
    omp_set_num_threads(2);
    parts(1, 7, 24, 11, true);
    parts(3, 5, 10, 6, false);
    parts(2, 67, 99, 17, true);
}

TEST(embed)
{
    omp_set_num_threads(2);
    shape(1, 7, 24, 0, 11);
    shape(3, 5, 10, 4, 6);
    shape(2, 67, 99, 13, 17);
}
