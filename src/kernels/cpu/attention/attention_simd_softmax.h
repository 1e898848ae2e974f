/* The steps between the products: the online softmax, and the gradient of a softmax. */
#include <math.h>

/* Vectors of queries handled at once, to hide latencies. */
enum { SP_GROUP = 4 };

/*
 * 2^(x scale), 0 below e^-80: 2^n by the exponent, the rest by a polynomial with p(0) = 1.
 * Accurate to 1e-7 on f32 tiles, to 4e-6 if the result is rounded to bf16.
 */
V_INLINE vec power2(vec x, vec scale)
{
    vec t = v_mul(x, scale), n = v_round(t), r = v_fms(x, scale, n), p;

#if SP_PAIR == 1
    p = v_fma(r, v_all(1.5594677550e-04f), v_all(1.3406643905e-03f));
    p = v_fma(r, p, v_all(9.6176929749e-03f));
    p = v_fma(r, p, v_all(5.5503105510e-02f));
    p = v_fma(r, p, v_all(2.4022652783e-01f));
    p = v_fma(r, p, v_all(6.9314721497e-01f));
#else
    p = v_fma(r, v_all(9.7829125535e-03f), v_all(5.5976883627e-02f));
    p = v_fma(r, p, v_all(2.4020711079e-01f));
    p = v_fma(r, p, v_all(6.9311360440e-01f));
#endif
    p = v_fma(r, p, v_all(1.0f));
    return v_power(p, n, t, -115.0f);
}

/* Maxima of `n` vectors of queries from column c on; masked scores become -inf. */
V_INLINE void maxima(const int n, const struct sp_softmax *s, int c, vec *max)
{
    for (int j = 0; j < s->keys; j++) {
        float *row = s->scores + (size_t)j * SP_Q_TILE + c;

        if (j <= s->diag) {
#pragma GCC unroll 8
            for (int i = 0; i < n; i++)
                max[i] = v_max(max[i], v_load(row + i * SP_LANES));
            continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < n; i++) {
            vec x =
                v_fill_below(v_load(row + i * SP_LANES), j - s->diag - c - i * SP_LANES, -INFINITY);

            v_store(row + i * SP_LANES, x);
            max[i] = v_max(max[i], x);
        }
    }
}

/* Turns scores into P and adds their sums. */
V_INLINE void exponentials(const int n, const struct sp_softmax *s, int c, vec scale,
                           const vec *max, vec *sum)
{
    for (int j = 0; j < s->keys; j += SP_PAIR) {
        float *row = s->scores + (size_t)j * SP_Q_TILE + c;

#pragma GCC unroll 8
        for (int i = 0; i < n; i++) {
            vec p = power2(v_sub(v_load(row + i * SP_LANES), max[i]), scale);

            sum[i] = v_add(sum[i], p);
#if SP_PAIR == 1
            v_store(row + i * SP_LANES, p);
#else
            float *words = s->scores + (size_t)(j / 2) * SP_Q_TILE + c;
            vec next = v_zero();

            if (j + 1 < s->keys)
                next = power2(v_sub(v_load(row + SP_Q_TILE + i * SP_LANES), max[i]), scale);
            sum[i] = v_add(sum[i], next);
            v_store_pairs((uint32_t *)(void *)words + i * SP_LANES, p, next);
#endif
        }
    }
}

V_INLINE bool softmax_columns(const int n, const struct sp_softmax *s, int c)
{
    vec max[SP_GROUP], sum[SP_GROUP], scale = v_all(s->scale * 1.44269504088896341f);
    float before[SP_GROUP * SP_LANES];

    memcpy(before, s->max + c, sizeof(float) * (size_t)(n * SP_LANES));
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        max[i] = s->first ? v_all(-INFINITY) : v_load(before + i * SP_LANES);
    maxima(n, s, c, max);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        sum[i] = v_zero();
        v_store(s->max + c + i * SP_LANES, max[i]);
        if (!s->first) {
            vec correction = power2(v_sub(v_load(before + i * SP_LANES), max[i]), scale);

            v_store(s->correction + c + i * SP_LANES, correction);
            sum[i] = v_mul(v_load(s->sum + c + i * SP_LANES), correction);
        }
    }
    exponentials(n, s, c, scale, max, sum);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        v_store(s->sum + c + i * SP_LANES, sum[i]);
    return !s->first && memcmp(before, s->max + c, sizeof(float) * (size_t)(n * SP_LANES));
}

SP_TARGET static bool softmax(const struct sp_softmax *s)
{
    bool rose = false;
    int c = 0;

    for (; c + (SP_GROUP - 1) * SP_LANES < s->queries; c += SP_GROUP * SP_LANES)
        rose |= softmax_columns(SP_GROUP, s, c);
    for (; c < s->queries; c += SP_LANES)
        rose |= softmax_columns(1, s, c);
    return rose;
}

/* One vector of P and of dS, of key j and the queries from c on. */
V_INLINE void gradient_vector(const struct sp_gradient *g, int j, int c, vec *p, vec *ds)
{
    size_t at = (size_t)j * SP_Q_TILE + (size_t)c;
    vec x = v_fms(v_load(g->s + at), v_all(g->scale), v_load(g->lse + c));

    *p = power2(x, v_all(1.44269504088896341f));
    *ds = v_mul(*p, v_sub(v_load(g->dp + at), v_load(g->mean + c)));
    if (j > g->diag) {
        *p = v_fill_below(*p, j - g->diag - c, 0);
        *ds = v_fill_below(*ds, j - g->diag - c, 0);
    }
}

#if SP_PAIR == 1
SP_TARGET static void gradient(const struct sp_gradient *g)
{
    for (int j = 0; j < g->keys; j++)
        for (int c = 0; c < g->queries; c += SP_LANES) {
            size_t at = (size_t)j * SP_Q_TILE + (size_t)c;
            vec p, ds;

            gradient_vector(g, j, c, &p, &ds);
            v_store(g->s + at, p);
            v_store(g->dp + at, ds);
        }
}
#else
SP_TARGET static void gradient(const struct sp_gradient *g)
{
    for (int j = 0; j < g->keys; j += 2)
        for (int c = 0; c < g->queries; c += 2 * SP_LANES) {
            size_t half = (size_t)j * SP_Q_TILE / 2 + (size_t)c / 2;
            vec p[2][2], ds[2][2] = {{v_zero(), v_zero()}, {v_zero(), v_zero()}};
            int rows = j + 1 < g->keys ? 2 : 1;

            for (int r = 0; r < rows; r++) {
                gradient_vector(g, j + r, c, &p[r][0], &ds[r][0]);
                gradient_vector(g, j + r, c + SP_LANES, &p[r][1], &ds[r][1]);
                v_store_row(g->p + half + (size_t)r * (SP_Q_TILE / 2), p[r][0], p[r][1]);
                v_store_row(g->ds + half + (size_t)r * (SP_Q_TILE / 2), ds[r][0], ds[r][1]);
            }
            for (int i = 0; i < 2; i++)
                v_store_pairs(g->across + (size_t)(j / 2) * SP_Q_TILE + (size_t)(c + i * SP_LANES),
                              ds[0][i], ds[1][i]);
        }
}
#endif
