/* The CUDA norms, emulated, against the CPU's. */
#include "cuda_test.h"

static const float eps = 1e-5f;

/* `off`: pointers that many elements off what is aligned. */
static void shape(enum sp_dtype t, bool rms, int T, int h, size_t off, float offset)
{
    size_t n = (size_t)T * (size_t)h, width = (size_t)h, bytes = (n + off) * sp_dtype_bytes(t);
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(n + off, 1), *gain = new_random(width + off, 2);
    float *bias = new_random(width + off, 3), *dy = new_random(n + off, 4);
    float *dres = new_random(n + off, 5), *dgain = new_random(width, 6),
          *dbias = new_random(width, 7);
    float *y = new_nan(n), *stats = new_nan(2 * (size_t)T), *dx = new_nan(n);
    float *dx_res = new_nan(n), *want_dgain = new_copy(width, dgain);
    float *want_dbias = new_copy(width, dbias);
    double tolerance = offset != 0 ? 2e-4 : BOTH;
    void *tx, *tgain, *tbias, *tdy, *tdres, *kept_y = NULL, *kept_dx = NULL;
    float *kept_dgain = NULL, *kept_dbias = NULL;
    const struct sp_norm want = {.rms = rms,
                                 .T = T,
                                 .h = h,
                                 .eps = eps,
                                 .gain = gain + off,
                                 .bias = rms ? NULL : bias + off};

    for (size_t i = 0; i < n + off; i++)
        x[i] += offset;
    tx = new_typed(t, n + off, x), tgain = new_typed(t, width + off, gain);
    tbias = new_typed(t, width + off, bias), tdy = new_typed(t, n + off, dy);
    tdres = new_typed(t, n + off, dres);
    sp_norm(&want, x + off, y, stats);
    sp_norm_bwd(
        &want, x + off, stats,
        &(struct sp_norm_bwd){
            .dy = dy + off, .dx = dx, .dgain = want_dgain, .dbias = rms ? NULL : want_dbias});
    sp_norm_bwd(&want, x + off, stats,
                &(struct sp_norm_bwd){.dy = dy + off, .dres = dres + off, .dx = dx_res});
    for (unsigned order = 0; order < ORDERS; order++) {
        void *ty = new_typed_nan(t, n + off), *again = new_typed_nan(t, n + off);
        void *tdx = new_typed_nan(t, n + off), *alias = new_bytes_of(bytes, tdy);
        float *tstats = new_nan(2 * (size_t)T), *sum_gain = new_copy(width, dgain);
        float *sum_bias = new_copy(width, dbias);
        const void *b = rms ? NULL : at(t, tbias, off);
        const struct sp_norm norm = {
            .rms = rms, .T = T, .h = h, .eps = eps, .gain = at(t, tgain, off), .bias = b};

        sp_emulated_order(order);
        k->norm(k, &norm, at(t, tx, off), at(t, ty, off), tstats);
        k->norm_apply(k, &norm, at(t, tx, off), tstats, at(t, again, off));
        sp_emulated_wait();
        assert_same_bytes(t, n + off, again, ty);
        memset(again, 0xff, bytes);
        k->norm(k, &norm, at(t, tx, off), at(t, again, off), NULL);
        sp_emulated_wait();
        assert_same_bytes(t, n + off, again, ty);

        k->norm_bwd(k, &norm, at(t, tx, off), tstats,
                    &(struct sp_norm_bwd){.dy = at(t, tdy, off),
                                          .dx = at(t, tdx, off),
                                          .dgain = sum_gain,
                                          .dbias = rms ? NULL : sum_bias});
        /* dx may be dy, whatever else is wanted. */
        k->norm_bwd(k, &norm, at(t, tx, off), tstats,
                    &(struct sp_norm_bwd){.dy = at(t, alias, off), .dx = at(t, alias, off)});
        sp_emulated_wait();
        assert_same_bytes(t, n, at(t, alias, off), at(t, tdx, off));
        if (order == 0) {
            printf("    %s, %d rows of %d%s\n", rms ? "rms norm" : "layer norm", T, h,
                   off ? ", not aligned" : "");
            assert_typed("y", t, n, at(t, ty, off), y, tolerance);
            assert_close_floats("stats", 2 * (size_t)T, tstats, stats, BOTH);
            assert_typed("dx", t, n, at(t, tdx, off), dx, tolerance);
            assert_close_floats("dgain +=", width, sum_gain, want_dgain, tolerance);
            assert_close_floats("dbias +=", width, sum_bias, rms ? dbias : want_dbias, BOTH);
            kept_y = ty, kept_dx = tdx, kept_dgain = sum_gain, kept_dbias = sum_bias;
        } else {
            assert_same_bytes(t, n + off, ty, kept_y);
            assert_same_bytes(t, n, at(t, tdx, off), at(t, kept_dx, off));
            assert_same_bits(width, sum_gain, kept_dgain);
            assert_same_bits(width, sum_bias, kept_dbias);
        }

        /* With the gradient of the residual; dx may be it, or dy, with all sums, which lie one after the other. */
        memset(again, 0xff, bytes);
        sum_gain = test_bytes(2 * width * sizeof *sum_gain);
        sum_bias = sum_gain + width;
        memcpy(sum_gain, dgain, width * sizeof *dgain);
        memcpy(sum_bias, dbias, width * sizeof *dbias);
        k->norm_bwd(k, &norm, at(t, tx, off), tstats,
                    &(struct sp_norm_bwd){
                        .dy = at(t, tdy, off), .dres = at(t, tdres, off), .dx = at(t, again, off)});
        memcpy(alias, tdres, bytes);
        k->norm_bwd(k, &norm, at(t, tx, off), tstats,
                    &(struct sp_norm_bwd){
                        .dy = at(t, tdy, off), .dres = at(t, alias, off), .dx = at(t, alias, off)});
        sp_emulated_wait();
        assert_same_bytes(t, n, at(t, alias, off), at(t, again, off));
        memcpy(alias, tdy, bytes);
        k->norm_bwd(k, &norm, at(t, tx, off), tstats,
                    &(struct sp_norm_bwd){.dy = at(t, alias, off),
                                          .dres = at(t, tdres, off),
                                          .dx = at(t, alias, off),
                                          .dgain = sum_gain,
                                          .dbias = rms ? NULL : sum_bias});
        sp_emulated_wait();
        assert_same_bytes(t, n, at(t, alias, off), at(t, again, off));
        assert_same_bits(width, sum_gain, kept_dgain);
        assert_same_bits(width, sum_bias, kept_dbias);
        if (order == 0)
            assert_typed("dx with residual", t, n, at(t, again, off), dx_res, tolerance);
    }
}

/* A warp to a row, several rows to a block; wide accesses and not. */
TEST(narrow)
{
    for (int t = 0; t < SP_ELEMENTS; t++)
        for (int rms = 0; rms < 2; rms++) {
            shape(t, rms, 1, 11, 0, 0);
            shape(t, rms, 7, 24, 0, 0);
            shape(t, rms, 7, 24, 1, 0);
            shape(t, rms, 203, 40, 0, 0);
            shape(t, rms, 61, 301, 0, 0);
        }
    /* A mean 100 times the spread costs two digits of x - mean, not four of the variance. */
    shape(SP_F32, false, 13, 40, 0, 50);
}

/* A block to a row. */
TEST(wide)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        shape(t, false, 9, 520, 0, 0);
        shape(t, true, 10, 777, 0, 0);
        shape(t, false, 3, 2568, 0, 0);
    }
    shape(SP_F32, false, 13, 1400, 0, 50);
}

/* Rows that the threads of a block do not hold at once, forward or backward. */
TEST(spans)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        shape(t, false, 3, 8224, 0, 0);
        shape(t, false, 19, 4103, 0, 0);
    }
    shape(SP_BF16, true, 2, 16424, 0, 0);
    shape(SP_F32, false, 2, 16424, 0, 0);
    shape(SP_F32, false, 2, 8201, 0, 0);
}

/* More rows than the groups can have GROUP_ROWS of. */
TEST(many_rows)
{
    enum { T = 4129, H = 516, N = T * H };
    const struct sp_backend *k = sp_emulated_backend(SP_F32);
    float *x = new_random(N, 1), *gain = new_random(H, 2), *dy = new_random(N, 3);
    float *y = new_nan(N), *stats = new_nan(2 * T), *dx = new_nan(N), *want = new_nan(N);
    float *dgain = new_random(H, 4), *want_dgain = new_copy(H, dgain);

    sp_norm(&(struct sp_norm){.rms = true, .T = T, .h = H, .eps = eps, .gain = gain}, x, y, stats);
    sp_norm_bwd(&(struct sp_norm){.rms = true, .T = T, .h = H, .gain = gain}, x, stats,
                &(struct sp_norm_bwd){.dy = dy, .dx = want, .dgain = want_dgain});
    sp_emulated_order(2);
    k->norm_bwd(k, &(struct sp_norm){.rms = true, .T = T, .h = H, .gain = gain}, x, stats,
                &(struct sp_norm_bwd){.dy = dy, .dx = dx, .dgain = dgain});
    sp_emulated_wait();
    assert_close_floats("dx", N, dx, want, BOTH);
    assert_close_floats("dgain +=", H, dgain, want_dgain, BOTH);
}
