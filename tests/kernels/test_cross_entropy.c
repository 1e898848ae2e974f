/* Logits and cross-entropy, any number of rows at a time. */
#include "head_cases.h"
#include "kernels/cpu/pointwise/pointwise.h"

struct head {
    int T, h, V;
    const int32_t *targets;
    double scale, *x, *w, *dx, *dw, loss;
};

/* Loss unscaled, gradients scaled, as in the contract. */
static void reference(struct head *r)
{
    double *p = test_bytes((size_t)r->V * sizeof *p);

    r->loss = 0;
    for (int t = 0; t < r->T; t++) {
        double max = -INFINITY, sum = 0;

        if (r->targets[t] == SP_NO_TARGET)
            continue;
        for (int v = 0; v < r->V; v++) {
            p[v] = 0;
            for (int j = 0; j < r->h; j++)
                p[v] += r->x[t * r->h + j] * r->w[v * r->h + j];
            max = fmax(max, p[v]);
        }
        for (int v = 0; v < r->V; v++)
            sum += exp(p[v] - max);
        r->loss += log(sum) + max - p[r->targets[t]];
        for (int v = 0; v < r->V && r->dx; v++) {
            double g = r->scale * (exp(p[v] - max) / sum - (v == r->targets[t]));

            for (int j = 0; j < r->h; j++) {
                r->dx[t * r->h + j] += g * r->w[v * r->h + j];
                r->dw[v * r->h + j] += g * r->x[t * r->h + j];
            }
        }
    }
}

static double scaled_loss(void *arg)
{
    struct head r = *(struct head *)arg;

    r.dx = NULL;
    reference(&r);
    return r.scale * r.loss;
}

static void assert_loss(double got, double want)
{
    printf("    loss %.9f, reference %.9f\n", got, want);
    assert_true(fabs(got - want) < 1e-6 * fabs(want));
}

static void fill_targets(int T, int V, int32_t *targets)
{
    for (int t = 0; t < T; t++)
        targets[t] = t == 0 ? V - 1 : t % 4 == 2 ? SP_NO_TARGET : t * 5 % V;
}

static void shape(struct sp_logits head)
{
    int T = head.T, h = head.h, V = head.V;
    size_t n_x = (size_t)T * (size_t)h, n_w = (size_t)V * (size_t)h;
    size_t n_z = (size_t)head.rows * (size_t)V;
    float *x = new_random(n_x, 1), *w = new_random(n_w, 2), *dx = new_nan(n_x);
    float *dw = new_random(n_w, 3), *dw2, *dx2 = new_nan(n_x), *scratch = new_nan(n_z + 1);
    int32_t *targets = test_bytes((size_t)T * sizeof *targets);
    struct head r = {.T = T, .h = h, .V = V, .targets = targets, .scale = 0.125};
    double loss = 2.5, loss2 = 2.5;

    head = head_with(head, x, w, scratch);
    head.targets = targets;
    fill_targets(T, V, targets);
    r.x = new_double(n_x, x), r.w = new_double(n_w, w);
    r.dx = new_double(n_x, NULL), r.dw = new_double(n_w, NULL);
    reference(&r);
    if (n_x + n_w < 600) {
        assert_gradient("reference dx", scaled_loss, &r, n_x, r.x, r.dx);
        assert_gradient("reference dw", scaled_loss, &r, n_w, r.w, r.dw);
    }
    for (size_t i = 0; i < n_w; i++)
        r.dw[i] += (double)dw[i];
    dw2 = new_copy(n_w, dw);

    sp_cross_entropy(&head, &loss, dx, dw);
    assert_loss(loss - 2.5, r.loss);
    assert_close("dx =", n_x, dx, r.dx, TOLERANCE);
    assert_close("dw +=", n_w, dw, r.dw, TOLERANCE);
    assert_true(isnan(scratch[n_z]));

    sp_cross_entropy(&head, &loss2, dx2, NULL);
    assert_true(loss2 == loss);
    assert_same_bits(n_x, dx2, dx);
    sp_cross_entropy(&head, &loss2, NULL, dw2);
    assert_same_bits(n_w, dw2, dw);
    loss2 = 0;
    sp_cross_entropy(&head, &loss2, NULL, NULL);
    assert_loss(loss2, r.loss);
}

TEST(rows)
{
    shape(head_of(7, 10, 37, 7));
    shape(head_of(7, 10, 37, 3));
    shape(head_of(7, 10, 37, 1));
    shape(head_of(7, 10, 37, 20));
    shape(head_of(23, 24, 1501, 9));
}

/* The vocabulary in three parts of different sizes, each with its own rows of w and its own scratch: loss and
 * gradients are those of the whole. */
static void parts(enum sp_dtype type, struct sp_logits head)
{
    const struct sp_backend *k = sp_cpu_backend(type);
    int T = head.T, h = head.h, V = head.V, rows = head.rows;
    const int begin[] = {0, V / 5, V / 2 + 1, V};
    size_t n_x = (size_t)T * (size_t)h, n_w = (size_t)V * (size_t)h;
    float *x = new_random(n_x, 1), *w = new_random(n_w, 2), *dw = new_random(n_w, 3);
    float *want_dx = new_nan(n_x), *want_dw = new_copy(n_w, dw);
    float *scratch = new_nan((size_t)rows * (size_t)sp_logits_ld(V)), *lse = new_nan((size_t)T);
    float *stats[3], *dx = new_nan(n_x), *wide = new_nan(n_x), *merged = new_nan(2 * (size_t)T);
    void *tx = test_bytes(n_x * sizeof *x), *tw = test_bytes(n_w * sizeof *w);
    void *part = test_bytes(n_x * sizeof *x);
    int32_t *targets = test_bytes((size_t)T * sizeof *targets);
    struct sp_logits whole = head_with(head, x, w, scratch), of[3];
    double want = 1.5, got = 1.5, tolerance = type == SP_BF16 ? 2e-2 : 1e-5;

    sp_convert(SP_F32, type, n_x, x, tx);
    sp_convert(SP_F32, type, n_w, w, tw);
    fill_targets(T, V, targets);
    whole.targets = targets;
    sp_cross_entropy(&whole, &want, want_dx, want_dw);
    for (int i = 0; i < 3; i++) {
        int n = begin[i + 1] - begin[i];
        int32_t *here = test_bytes((size_t)T * sizeof *here);

        for (int t = 0; t < T; t++)
            here[t] = targets[t] == SP_NO_TARGET                            ? SP_NO_TARGET
                      : targets[t] >= begin[i] && targets[t] < begin[i + 1] ? targets[t] - begin[i]
                                                                            : -1;
        of[i] = head_with(head, tx, at(type, tw, (size_t)begin[i] * (size_t)h),
                          new_nan((size_t)rows * (size_t)sp_logits_ld(n)));
        of[i].V = n;
        of[i].targets = here;
        stats[i] = new_nan(2 * (size_t)T);
        k->logit_stats(k, &of[i], stats[i]);
    }
    k->merge_stats(k, T, 2, (const float *const *)stats,
                   merged); /* two of the parts as one of them */
    k->merge_logits(k, T, 2, (const float *const[]){merged, stats[2]}, lse, &got);
    memset(dx, 0, n_x * sizeof *dx);
    for (int i = 0; i < 3; i++) {
        k->logits_bwd(k, &of[i], lse, rows >= T, part, dw + (size_t)begin[i] * (size_t)h);
        sp_convert(type, SP_F32, n_x, part, wide);
        for (size_t e = 0; e < n_x; e++)
            dx[e] += wide[e];
    }
    printf("    %s: loss %.9f in three parts, %.9f\n", sp_dtype_name(type), got, want);
    assert_true(fabs(got - want) < (type == SP_BF16 ? 2e-3 : 1e-6) * fabs(want));
    for (size_t e = 0; e < n_x; e++)
        assert_true(fabs((double)(dx[e] - want_dx[e])) <=
                    tolerance * (0.1 + fabs((double)want_dx[e])));
    for (size_t e = 0; e < n_w; e++)
        assert_true(fabs((double)(dw[e] - want_dw[e])) <=
                    tolerance * (0.1 + fabs((double)want_dw[e])));
}

TEST(parts)
{
    for (int type = 0; type < SP_ELEMENTS; type++) {
        parts((enum sp_dtype)type, head_of(7, 10, 37, 7));
        parts((enum sp_dtype)type, head_of(7, 10, 37, 3));
        parts((enum sp_dtype)type, head_of(23, 24, 1501, 9));
    }
}

TEST(large_logits)
{
    head_check_large(sp_cpu_backend(SP_F32), NULL);
}

TEST(nan)
{
    head_check_nan(sp_cpu_backend(SP_F32), NULL);
}
