/* LayerNorm and RMSNorm, forward, recomputed, and backward. */
#include "reference.h"

static const double eps = 1e-5;

/* Everything in double; arrays of T rows of h. */
struct norm {
    bool rms;
    int T, h;
    double *x, *gain, *bias, *weight; /* the loss is sum of weight * y */
    double *y, *dx, *dgain, *dbias;
};

static void forward(struct norm *r)
{
    for (int t = 0; t < r->T; t++) {
        const double *x = r->x + t * r->h;
        double mean = 0, square = 0;

        for (int j = 0; j < r->h && !r->rms; j++)
            mean += x[j] / r->h;
        for (int j = 0; j < r->h; j++)
            square += (x[j] - mean) * (x[j] - mean) / r->h;
        for (int j = 0; j < r->h; j++)
            r->y[t * r->h + j] =
                (x[j] - mean) / sqrt(square + eps) * r->gain[j] + (r->rms ? 0 : r->bias[j]);
    }
}

static double loss(void *arg)
{
    struct norm *r = arg;
    double sum = 0;

    forward(r);
    for (int i = 0; i < r->T * r->h; i++)
        sum += r->weight[i] * r->y[i];
    return sum;
}

static void backward(struct norm *r)
{
    for (int t = 0; t < r->T; t++) {
        const double *x = r->x + t * r->h, *dy = r->weight + t * r->h;
        double mean = 0, square = 0, e = 0, en = 0, rstd;

        for (int j = 0; j < r->h && !r->rms; j++)
            mean += x[j] / r->h;
        for (int j = 0; j < r->h; j++)
            square += (x[j] - mean) * (x[j] - mean) / r->h;
        rstd = 1 / sqrt(square + eps);
        for (int j = 0; j < r->h; j++) {
            e += r->rms ? 0 : dy[j] * r->gain[j] / r->h;
            en += dy[j] * r->gain[j] * (x[j] - mean) * rstd / r->h;
            r->dgain[j] += dy[j] * (x[j] - mean) * rstd;
            r->dbias[j] += dy[j];
        }
        for (int j = 0; j < r->h; j++)
            r->dx[t * r->h + j] += rstd * (dy[j] * r->gain[j] - e - (x[j] - mean) * rstd * en);
    }
}

static void shape(bool rms, int T, int h, float offset, double tolerance)
{
    size_t n = (size_t)T * (size_t)h, width = (size_t)h;
    float *x = new_random(n, 1), *gain = new_random(width, 2), *bias = new_random(width, 3);
    float *dy = new_random(n, 4), *dres = new_random(n, 5), *dgain = new_random(width, 6);
    float *dbias = new_random(width, 7), *y = new_nan(n), *again = new_nan(n), *dx = new_nan(n);
    float *stats = new_nan(2 * (size_t)T), *dgain2 = new_copy(width, dgain);
    float *dbias2 = new_copy(width, dbias);
    struct norm r = {.rms = rms, .T = T, .h = h};
    const struct sp_norm norm = {
        .rms = rms, .T = T, .h = h, .eps = (float)eps, .gain = gain, .bias = rms ? NULL : bias};

    for (size_t i = 0; i < n; i++)
        x[i] += offset;
    r.x = new_double(n, x), r.gain = new_double(width, gain), r.bias = new_double(width, bias);
    r.weight = new_double(n, dy), r.y = new_double(n, NULL), r.dx = new_double(n, NULL);
    r.dgain = new_double(width, NULL), r.dbias = new_double(width, NULL);
    forward(&r);
    backward(&r);
    if (n < 1000 && offset == 0) {
        assert_gradient("reference dx", loss, &r, n, r.x, r.dx);
        assert_gradient("reference dgain", loss, &r, width, r.gain, r.dgain);
        if (!rms)
            assert_gradient("reference dbias", loss, &r, width, r.bias, r.dbias);
        forward(&r);
    }

    sp_norm(&norm, x, y, stats);
    assert_close(rms ? "rms norm" : "layer norm", n, y, r.y, tolerance);
    sp_norm_apply(&norm, x, stats, again);
    assert_same_bits(n, again, y);
    memset(again, 0xff, n * sizeof *again);
    sp_norm(&norm, x, again, NULL);
    assert_same_bits(n, again, y);
    for (int t = 0; rms && t < T; t++)
        assert_true(stats[2 * t] == 0);

    /* dgain and dbias accumulate onto what is there. */
    for (int j = 0; j < h; j++) {
        r.dgain[j] += (double)dgain[j];
        r.dbias[j] += (double)dbias[j];
    }
    sp_norm_bwd(
        &norm, x, stats,
        &(struct sp_norm_bwd){.dy = dy, .dx = dx, .dgain = dgain, .dbias = rms ? NULL : dbias});
    assert_close("dx", n, dx, r.dx, tolerance);
    assert_close("dgain", width, dgain, r.dgain, tolerance);
    if (!rms)
        assert_close("dbias", width, dbias, r.dbias, tolerance);
    sp_norm_bwd(&norm, x, stats,
                &(struct sp_norm_bwd){
                    .dy = dy, .dx = again, .dgain = dgain2, .dbias = rms ? NULL : dbias2});
    assert_same_bits(n, again, dx);
    assert_same_bits(width, dgain2, dgain);

    for (size_t i = 0; i < n; i++)
        r.dx[i] += (double)dres[i];
    sp_norm_bwd(&norm, x, stats, &(struct sp_norm_bwd){.dy = dy, .dres = dres, .dx = dx});
    assert_close("dx with residual", n, dx, r.dx, tolerance);
    sp_norm_bwd(&norm, x, stats, &(struct sp_norm_bwd){.dy = dy, .dres = dres, .dx = dres});
    assert_same_bits(n, dres, dx);
}

TEST(norms)
{
    for (int rms = 0; rms < 2; rms++) {
        shape(rms, 7, 24, 0, TOLERANCE);
        shape(rms, 1, 11, 0, TOLERANCE);
        shape(rms, 61, 301, 0, TOLERANCE);
    }
    /* A mean 100 times the spread costs two digits of x - mean, not four of the variance. */
    shape(false, 13, 40, 50, 1e-4);
}

/* Partial sums are added in thread order: other teams differ by rounding only. */
TEST(teams)
{
    enum { T = 83, H = 207, N = T * H };
    float *x = new_random(N, 1), *gain = new_random(H, 2), *dy = new_random(N, 3);
    float *stats = new_nan(2 * T), *y = new_nan(N), *dx = new_nan(N), *dgain[4];
    int before = omp_get_max_threads();

    sp_norm(&(struct sp_norm){.rms = true, .T = T, .h = H, .eps = 1e-5f, .gain = gain}, x, y,
            stats);
    for (int k = 0; k < 4; k++) {
        dgain[k] = test_bytes(H * sizeof(float));
        memset(dgain[k], 0, H * sizeof(float));
        omp_set_num_threads(1 + k % 2);
        sp_norm_bwd(&(struct sp_norm){.rms = true, .T = T, .h = H, .gain = gain}, x, stats,
                    &(struct sp_norm_bwd){.dy = dy, .dx = dx, .dgain = dgain[k]});
    }
    omp_set_num_threads(before);
    assert_same_bits(H, dgain[0], dgain[2]);
    assert_same_bits(H, dgain[1], dgain[3]);
    assert_close_floats("dgain, 2 threads against 1", H, dgain[1], dgain[0], TOLERANCE);
}
