#include "comparison.h"

enum { GUARD = 3 }; /* elements past the end that nobody may write */

static size_t area(int rows, int width)
{
    return (size_t)rows * (size_t)width;
}

/* ---- arrays --------------------------------------------------------------------------------- */

static enum sp_dtype type_of(const struct comparison *c, const struct tensor *x, int side)
{
    return x->f32 ? SP_F32 : c->backends[side]->dtype;
}

static void *place(const struct comparison *c, int side, size_t n, size_t elem, const void *from)
{
    bool here = side == RIGHT || !c->alloc;
    void *to = here ? test_bytes(n * elem) : c->alloc(n * elem, elem);

    return here || !c->put ? memcpy(to, from, n * elem) : c->put(to, from, n * elem);
}

static void *fetch(const struct comparison *c, int side, size_t bytes, const void *from)
{
    void *to = test_bytes(bytes);

    return side == RIGHT || !c->get ? memcpy(to, from, bytes) : c->get(to, from, bytes);
}

/* n values, and NaN after them. */
static struct tensor tensor_of(const struct comparison *c, size_t n, const float *values, bool f32)
{
    struct tensor x = {.n = n, .f32 = f32};
    float *wide = new_nan(n + GUARD);
    uint16_t *low = test_bytes((n + GUARD) * sizeof *low);

    memset(low, 0xff, (n + GUARD) * sizeof *low);
    for (size_t i = 0; i < n; i++) {
        if (!isnan(values[i]))
            low[i] = sp_bf16(values[i]);
        wide[i] = type_of(c, &x, TESTED) == SP_BF16 ? sp_bf16_value(low[i]) : values[i];
    }
    for (int i = 0; i < SIDES; i++) {
        enum sp_dtype type = type_of(c, &x, i);
        const void *from = type == SP_BF16 ? (const void *)low : wide;

        x.at[i] = place(c, i, n + GUARD, sp_dtype_bytes(type), from);
    }
    return x;
}

struct tensor tensor_filled(const struct comparison *c, size_t n, uint64_t seed, bool f32)
{
    return tensor_of(c, n, new_random(n, seed), f32);
}

struct tensor tensor_spread(const struct comparison *c, size_t n, uint64_t seed)
{
    float *values = new_random(n, seed);

    for (size_t i = 0; i < n; i++)
        values[i] *= 6;
    return tensor_of(c, n, values, false);
}

struct tensor tensor_empty(const struct comparison *c, size_t n, bool f32)
{
    return tensor_of(c, n, new_nan(n), f32);
}

float *tensor_values(const struct comparison *c, const struct tensor *x, enum side side)
{
    enum sp_dtype type = type_of(c, x, side);
    size_t n = x->n + GUARD;
    void *values = fetch(c, side, n * sp_dtype_bytes(type), x->at[side]);
    float *wide = values;

    if (type == SP_BF16) {
        wide = new_nan(n);
        for (size_t i = 0; i < n; i++)
            wide[i] = sp_bf16_value(((const uint16_t *)values)[i]);
    }
    for (size_t i = x->n; i < n; i++)
        assert_true(isnan(wide[i]));
    return wide;
}

/* Compares an output of rows of `width` elements, between which NaN must have stayed. */
static void check_rows(const struct comparison *c, const char *what, const struct tensor *x,
                       int width, int ld)
{
    size_t before = test_held(), n = 0;
    float *values[SIDES];

    for (int i = 0; i < SIDES; i++) {
        n = 0;
        values[i] = tensor_values(c, x, i);
        for (size_t j = 0; j < x->n; j++)
            if (j % (size_t)ld < (size_t)width)
                values[i][n++] = values[i][j];
            else
                assert_true(isnan(values[i][j]));
    }
    c->judge(what, x, n, values[TESTED], values[RIGHT]);
    test_end_after(before);
}

void tensor_check(const struct comparison *c, const char *what, const struct tensor *x)
{
    check_rows(c, what, x, 1, 1);
}

static void judge_rounded(const char *what, const struct tensor *x, size_t n, const float *got,
                          const float *want)
{
    for (size_t i = 0; i < n; i++) {
        float right = x->f32 ? want[i] : sp_bf16_value(sp_bf16(want[i]));

        if (got[i] != right || isnan(right))
            fail_msg("%s[%zu of %zu]: %.9g, not %.9g", what, i, n, (double)got[i], (double)right);
    }
}

struct comparison compare_rounded(const struct sp_backend *tested)
{
    return (struct comparison){{tested, sp_cpu_backend(SP_F32)}, .judge = judge_rounded};
}

/* ---- kernels -------------------------------------------------------------------------------- */

static void end(const struct comparison *c, size_t blocks_before)
{
    test_end_after(blocks_before);
    if (c->release)
        c->release();
}

static void forward(const struct comparison *c, struct sp_linear l, const struct tensor *bias,
                    int ld)
{
    struct tensor w = tensor_filled(c, area(l.out, l.in), 2, false);
    struct tensor x = tensor_filled(c, area(l.T, l.in), 1, false);
    struct tensor r = tensor_filled(c, area(l.T, l.out), 4, false);
    struct tensor y = tensor_empty(c, area(l.T, ld), false);
    struct tensor sum = tensor_empty(c, r.n, false);

    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];

        l.w = w.at[i], l.bias = bias ? bias->at[i] : NULL, l.ld = ld;
        k->linear(k, &l, x.at[i], y.at[i]);
        l.ld = 0;
        k->linear_add(k, &l, x.at[i], r.at[i], sum.at[i]);
    }
    check_rows(c, "linear", &y, l.out, ld);
    tensor_check(c, "linear_add", &sum);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        struct tensor u = tensor_empty(c, r.n, false), g = tensor_empty(c, r.n, false);

        for (int i = 0; i < SIDES; i++) {
            const struct sp_backend *k = c->backends[i];

            l.w = w.at[i], l.bias = bias ? bias->at[i] : NULL;
            k->linear_act(k, &l, act, x.at[i], u.at[i], g.at[i]);
        }
        tensor_check(c, "linear_act u", &u);
        tensor_check(c, "linear_act g", &g);
    }
}

void compare_forward(const struct comparison *c, struct sp_linear l, int pad)
{
    size_t before = test_held();
    struct tensor bias = tensor_filled(c, (size_t)l.out, 3, false);

    forward(c, l, NULL, l.out + pad);
    forward(c, l, &bias, l.out + pad);
    end(c, before);
}

void compare_backward(const struct comparison *c, struct sp_linear l, int pad)
{
    size_t before = test_held();
    int ld = l.out + pad;
    struct tensor w = tensor_filled(c, area(l.out, l.in), 2, false);
    struct tensor x = tensor_filled(c, area(l.T, l.in), 1, false);
    struct tensor dy = tensor_filled(c, area(l.T, ld), 4, false);
    struct tensor dense = tensor_filled(c, area(l.T, l.out), 5, false);
    struct tensor u = tensor_filled(c, x.n, 9, false), dw = tensor_filled(c, w.n, 6, true);
    struct tensor dbias = tensor_filled(c, (size_t)l.out, 7, true);
    struct tensor new_dw = tensor_empty(c, w.n, true); /* of NaN */
    struct tensor dx = tensor_empty(c, x.n, false), sum = tensor_filled(c, x.n, 8, false);

    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];

        l.w = w.at[i], l.ld = ld;
        k->linear_dx(k, &l, dy.at[i], dx.at[i], false);
        k->linear_dx(k, &l, dy.at[i], sum.at[i], true);
        k->linear_dw(k, &l, x.at[i], dy.at[i], dw.at[i], dbias.at[i]);
        l.ld = 0;
        k->linear_dw(k, &l, x.at[i], dense.at[i], dw.at[i], NULL);
        l.first = true;
        k->linear_dw(k, &l, x.at[i], dense.at[i], new_dw.at[i], NULL);
        l.first = false;
    }
    tensor_check(c, "linear_dx", &dx), tensor_check(c, "linear_dx +=", &sum);
    tensor_check(c, "linear_dw", &dw), tensor_check(c, "dbias", &dbias);
    tensor_check(c, "linear_dw =", &new_dw);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        struct tensor du = tensor_empty(c, x.n, false);

        for (int i = 0; i < SIDES; i++) {
            const struct sp_backend *k = c->backends[i];

            l.w = w.at[i];
            k->linear_dx_act(k, &l, act, dense.at[i], u.at[i], du.at[i]);
        }
        tensor_check(c, "linear_dx_act", &du);
    }
    end(c, before);
}

/* `arrays`: with dres or not; dgain and dbias, dgain, none. dx is dy's place, or another. */
static void norm_backward(const struct comparison *c, const struct sp_norm *norm,
                          const struct tensor *x, const struct tensor *gain,
                          const struct tensor *stats, int arrays)
{
    size_t width = (size_t)norm->h;
    struct tensor dy = tensor_filled(c, x->n, 5, false), dres = tensor_filled(c, x->n, 6, false);
    struct tensor dx = arrays % 4 == 0 ? dy : tensor_empty(c, x->n, false);
    struct tensor dgain = tensor_filled(c, width, 7, true),
                  dbias = tensor_filled(c, width, 8, true);

    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];
        struct sp_norm n = *norm;

        n.gain = gain->at[i];
        k->norm_bwd(k, &n, x->at[i], stats->at[i],
                    &(struct sp_norm_bwd){.dy = dy.at[i],
                                          .dres = arrays % 2 ? dres.at[i] : NULL,
                                          .dx = dx.at[i],
                                          .dgain = arrays / 2 < 2 ? dgain.at[i] : NULL,
                                          .dbias = arrays / 2 == 0 && !n.rms ? dbias.at[i] : NULL});
    }
    tensor_check(c, "norm_bwd dx", &dx), tensor_check(c, "norm_bwd dgain", &dgain);
    tensor_check(c, "norm_bwd dbias", &dbias);
}

static void compare_norm(const struct comparison *c, bool rms, int T, int h)
{
    size_t before = test_held(), n = area(T, h);
    struct sp_norm norm = {.rms = rms, .T = T, .h = h, .eps = 1e-5f};
    struct tensor x = tensor_filled(c, n, 1, false), gain = tensor_filled(c, (size_t)h, 2, false);
    struct tensor bias = tensor_filled(c, (size_t)h, 3, false);
    struct tensor stats = tensor_empty(c, area(T, 2), true);
    struct tensor y = tensor_empty(c, n, false), again = tensor_empty(c, n, false);

    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];

        norm.gain = gain.at[i], norm.bias = rms ? NULL : bias.at[i];
        k->norm(k, &norm, x.at[i], y.at[i], stats.at[i]);
        k->norm_apply(k, &norm, x.at[i], stats.at[i], again.at[i]);
    }
    tensor_check(c, "norm", &y), tensor_check(c, "norm_apply", &again),
        tensor_check(c, "norm statistics", &stats);
    for (int arrays = 0; arrays < 6; arrays++)
        norm_backward(c, &norm, &x, &gain, &stats, arrays);
    end(c, before);
}

void compare_norms(const struct comparison *c, int T, int h)
{
    compare_norm(c, false, T, h);
    compare_norm(c, true, T, h);
}

/* The values of the right side, rounded, for both. */
static struct tensor shared(const struct comparison *c, const struct tensor *x)
{
    return tensor_of(c, x->n, tensor_values(c, x, RIGHT), x->f32);
}

void compare_attention(const struct comparison *c, struct sp_attention at)
{
    enum { MOST_SLICES = 4 };
    size_t before = test_held(), rows = area(at.batch, at.q_len) * (size_t)at.heads;
    size_t n = rows * (size_t)at.head_dim;
    struct tensor q = tensor_filled(c, n, 1, false), d_o = tensor_filled(c, n, 2, false);
    struct tensor o = tensor_empty(c, n, false), lse = tensor_empty(c, rows, true), kv[MOST_SLICES];
    void *keys[SIDES][MOST_SLICES];

    at.q_pos = 0;
    for (int j = 0; j < at.n_kv; j++) {
        size_t n_kv = area(at.batch, at.kv_len[j]) * area(2 * at.kv_heads, at.head_dim);

        at.q_pos += j < at.n_kv - 1 ? at.kv_len[j] : 0;
        kv[j] = tensor_filled(c, n_kv, 3 + (uint64_t)j, false);
        for (int i = 0; i < SIDES; i++)
            keys[i][j] = kv[j].at[i];
    }
    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];

        k->attention(k, &at, q.at[i], (const void *const *)keys[i], o.at[i], lse.at[i]);
    }
    tensor_check(c, "attention", &o), tensor_check(c, "attention lse", &lse);
    o = shared(c, &o), lse = shared(c, &lse); /* the backward of both reads the same */
    for (int first = 0; first < 2; first++) {
        struct tensor dq = tensor_empty(c, n, false), dkv[MOST_SLICES];

        for (int j = 0; j < at.n_kv; j++)
            dkv[j] = first ? tensor_empty(c, kv[j].n, false)
                           : tensor_filled(c, kv[j].n, 11 + (uint64_t)j, false);
        for (int i = 0; i < SIDES; i++) {
            const struct sp_backend *k = c->backends[i];
            void *gradients[MOST_SLICES];

            for (int j = 0; j < at.n_kv; j++)
                gradients[j] = dkv[j].at[i];
            k->attention_bwd(k, &at,
                             &(struct sp_attention_bwd){.q = q.at[i],
                                                        .kv = (const void *const *)keys[i],
                                                        .o = o.at[i],
                                                        .lse = lse.at[i],
                                                        .d_o = d_o.at[i],
                                                        .dq = dq.at[i],
                                                        .dkv = gradients,
                                                        .first = first});
        }
        tensor_check(c, "attention_bwd dq", &dq);
        for (int j = 0; j < at.n_kv; j++)
            tensor_check(c, "attention_bwd dkv", &dkv[j]);
    }
    end(c, before);
}

void compare_rope(const struct comparison *c, struct sp_rotation r, int gap, bool inverse)
{
    size_t before = test_held();
    struct tensor x;

    r.ld = r.heads * r.d + gap;
    x = tensor_filled(c, area(r.batch * r.len, r.ld), 4, false);
    for (int i = 0; i < SIDES; i++)
        c->backends[i]->rope(c->backends[i], &r, inverse, x.at[i]);
    tensor_check(c, "rope", &x);
    end(c, before);
}

void compare_mlp(const struct comparison *c, int T, int f)
{
    size_t before = test_held(), n = area(T, f);
    struct tensor dy = tensor_filled(c, n, 2, false), sum = tensor_filled(c, n, 3, false);
    struct tensor parts = tensor_filled(c, n, 4, false);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        const struct sp_gated g = {.act = act, .T = T, .f = f};
        struct tensor u = tensor_spread(c, 2 * n, 1), y = tensor_empty(c, 2 * n, false);
        struct tensor product = tensor_empty(c, n, false), du = tensor_empty(c, 2 * n, false);

        for (int i = 0; i < SIDES; i++) {
            const struct sp_backend *k = c->backends[i];

            k->act(k, act, 2 * n, u.at[i], y.at[i]);
            k->gated(k, &g, u.at[i], product.at[i]);
            k->gated_bwd(k, &g, u.at[i], dy.at[i], du.at[i]);
            k->gated_bwd(k, &g, u.at[i], dy.at[i], u.at[i]);
        }
        tensor_check(c, "act", &y), tensor_check(c, "gated", &product),
            tensor_check(c, "gated_bwd", &du);
        tensor_check(c, "gated_bwd in place", &u);
    }
    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];
        const void *three[] = {dy.at[i], sum.at[i], dy.at[i]};

        k->add_parts(k, n, 3, three, parts.at[i]);
        k->add(k, n, dy.at[i], sum.at[i]);
    }
    tensor_check(c, "add_parts", &parts), tensor_check(c, "add", &sum);
    end(c, before);
}

static struct sp_embed embed_on(const struct comparison *c, struct sp_embed e, int side)
{
    e.ids = place(c, side, area(e.batch, e.len), sizeof *e.ids, e.ids);
    return e;
}

void compare_embed(const struct comparison *c, struct sp_embed e, int V)
{
    size_t before = test_held(), n = area(e.batch * e.len, e.h);
    struct tensor table = tensor_filled(c, area(V, e.h), 1, false);
    struct tensor places = tensor_filled(c, area(e.here ? e.here : e.pos0 + e.len, e.h), 2, false);
    struct tensor dx = tensor_filled(c, n, 3, false), x = tensor_empty(c, n, false);
    struct tensor plain = tensor_empty(c, n, false), dtable = tensor_filled(c, table.n, 4, true);
    struct tensor dplaces = tensor_filled(c, places.n, 5, true);
    int32_t *ids = test_bytes(area(e.batch, e.len) * sizeof *ids);

    for (int t = 0; t < e.batch * e.len; t++)
        ids[t] = (t * t + 3) % V;
    e.ids = ids;
    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];
        const struct sp_embed on = embed_on(c, e, i);

        k->embed(k, &on, table.at[i], places.at[i], x.at[i]);
        k->embed(k, &on, table.at[i], NULL, plain.at[i]);
        k->embed_bwd(k, &on, dx.at[i], dtable.at[i], dplaces.at[i]);
        k->embed_bwd(k, &on, dx.at[i], dtable.at[i], NULL);
    }
    tensor_check(c, "embed", &x), tensor_check(c, "embed without positions", &plain);
    tensor_check(c, "embed_bwd", &dtable), tensor_check(c, "embed_bwd positions", &dplaces);
    end(c, before);
}

void compare_head(const struct comparison *c, int T, int h, int V, int rows)
{
    size_t before = test_held();
    struct tensor x = tensor_filled(c, area(T, h), 3, false), dx = tensor_empty(c, x.n, false);
    struct tensor w = tensor_filled(c, area(V, h), 1, false), dw = tensor_filled(c, w.n, 6, true);
    struct tensor scratch = tensor_empty(c, area(rows, sp_logits_ld(V)), false);
    int32_t *targets = test_bytes((size_t)T * sizeof *targets);
    double start = 0.5, *loss[SIDES];

    for (int t = 0; t < T; t++)
        targets[t] = t % 5 == 2 ? SP_NO_TARGET : (t * t + 3) % V;
    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];
        const struct sp_logits head = {.T = T,
                                       .h = h,
                                       .V = V,
                                       .rows = rows,
                                       .x = x.at[i],
                                       .w = w.at[i],
                                       .targets = place(c, i, (size_t)T, sizeof *targets, targets),
                                       .scale = 0.1f,
                                       .scratch = scratch.at[i]};
        double *sum = place(c, i, 1, sizeof start, &start);

        k->cross_entropy(k, &head, sum, dx.at[i], dw.at[i]);
        loss[i] = fetch(c, i, sizeof start, sum);
    }
    dw.rough = true;
    tensor_check(c, "cross_entropy dx", &dx), tensor_check(c, "cross_entropy dw", &dw);
    printf("%s loss: %.9g, %.9g\n", c->backends[TESTED]->name, *loss[TESTED], *loss[RIGHT]);
    assert_true(*loss[RIGHT] > 1);
    assert_true(fabs(*loss[TESTED] / *loss[RIGHT] - 1) <= c->loss_error);
    end(c, before);
}

void compare_update(const struct comparison *c, size_t n)
{
    const struct sp_adamw hp = {.lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .bias1 = 0.1f,
                                .bias2 = 0.05f,
                                .grad_scale = 0.5f};
    size_t before = test_held();
    struct tensor w = tensor_filled(c, n, 1, true), g = tensor_filled(c, n, 2, true);
    struct tensor m = tensor_filled(c, n, 3, true), v, y = tensor_filled(c, n, 5, true);
    struct tensor low = tensor_empty(c, n, false), rounded = tensor_empty(c, n, false);
    float *squares = new_random(n, 4);

    for (size_t i = 0; i < n; i++)
        squares[i] = fabsf(squares[i]);
    v = tensor_of(c, n, squares, true);
    for (int i = 0; i < SIDES; i++) {
        const struct sp_backend *k = c->backends[i];

        k->add_f32(k, n, g.at[i], y.at[i]);
        k->adamw(k, &hp,
                 &(struct sp_adamw_arrays){.n = n,
                                           .w = w.at[i],
                                           .g = g.at[i],
                                           .m = m.at[i],
                                           .v = v.at[i],
                                           .low = i == TESTED ? low.at[i] : NULL});
        k->round(k, n, w.at[i], rounded.at[i]);
    }
    low.at[RIGHT] = rounded.at[RIGHT];
    tensor_check(c, "add_f32", &y), tensor_check(c, "round", &rounded),
        tensor_check(c, "adamw rounded w", &low);
    tensor_check(c, "adamw w", &w), tensor_check(c, "adamw m", &m), tensor_check(c, "adamw v", &v);
    tensor_check(c, "adamw g", &g);
    end(c, before);
}
