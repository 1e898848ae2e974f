/* Into tiles, and out of them. */

/*
 * Rows of a tile are far apart, each in a page of its own as a rule: asked for this many rows ahead,
 * they come several at a time.
 */
enum { SP_AHEAD = 16 };

/* `write` is a constant: clang wants a literal. */
#define row_ahead(type, r, rows, d, x, ld, write)                                                  \
    do {                                                                                           \
        size_t size_ = sp_dtype_bytes(type);                                                       \
        const char *row_ = (const char *)(x) + (size_t)((r) + SP_AHEAD) * (ld)*size_;              \
                                                                                                   \
        if ((r) + SP_AHEAD < (rows))                                                               \
            for (size_t i_ = 0; i_ < (size_t)(d)*size_; i_ += 64)                                  \
                __builtin_prefetch(row_ + i_, write, 3);                                           \
    } while (0)

SP_TARGET static void pack_rows(const struct sp_tile_pack *t)
{
    const int rows = t->rows, d = t->d, ldt = t->ldt;
    const void *x = t->x;
    const size_t ld = t->ld;
    uint32_t *tile = t->tile;

    for (int r = 0; r < rows; r++, tile += ldt) {
        row_ahead(t->type, r, rows, d, x, ld, 0);
#if SP_PAIR == 1
        if (t->type == SP_BF16) {
            const uint16_t *from = (const uint16_t *)x + (size_t)r * ld;

#pragma omp simd
            for (int i = 0; i < d; i++)
                tile[i] = (uint32_t)from[i] << 16;
        } else {
            memcpy(tile, (const float *)x + (size_t)r * ld, sizeof *tile * (size_t)d);
        }
        for (int i = d; i < ldt; i++)
            tile[i] = 0;
#else
        /* x is bf16 */
        memcpy(tile, (const uint16_t *)x + (size_t)r * ld, sizeof(uint16_t) * (size_t)d);
        for (int i = d; i < 2 * ldt; i++)
            ((uint16_t *)tile)[i] = 0;
#endif
    }
    if (t->all > rows)
        memset(tile, 0, sizeof *tile * (size_t)(t->all - rows) * (size_t)ldt);
}

SP_TARGET static void transpose(int rows, int words, const uint32_t *tile, int ldt, uint32_t *out)
{
    for (int r = 0; r < rows; r += SP_LANES)
        for (int w = 0; w < words; w += 4) {
            const uint32_t *from = tile + (size_t)r * (size_t)ldt + w;
            float *to = (float *)(void *)out + (size_t)w * SP_Q_TILE + r;
            vec a = v_quads(from, (size_t)ldt), b = v_quads(from + ldt, (size_t)ldt);
            vec c = v_quads(from + 2 * ldt, (size_t)ldt), d = v_quads(from + 3 * ldt, (size_t)ldt);
            vec ab = v_unpack_low(a, b), cd = v_unpack_low(c, d);

            v_store(to, v_pairs_low(ab, cd));
            v_store(to + SP_Q_TILE, v_pairs_high(ab, cd));
            ab = v_unpack_high(a, b), cd = v_unpack_high(c, d);
            v_store(to + 2 * SP_Q_TILE, v_pairs_low(ab, cd));
            v_store(to + 3 * SP_Q_TILE, v_pairs_high(ab, cd));
        }
}

SP_TARGET static void scale_rows(int rows, int width, const float *factor, float *x)
{
    for (int r = 0; r < rows; r++, x += width) {
        vec f = v_all(factor[r]);

        for (int i = 0; i < width; i += SP_LANES)
            v_store(x + i, v_mul(v_load(x + i), f));
    }
}

/* sp_bf16(), as the compiler vectorises it. */
V_INLINE uint16_t rounded(float x)
{
    uint32_t u = sp_to_bits(x), nearest = (u + 0x7fffu + (u >> 16 & 1)) >> 16;

    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40 : nearest);
}

/* Several rows of bf16 make good use of a vector, one element at a time does not: by SP_ROUND. */
enum { SP_ROUND = 64 };

V_INLINE void store_bf16(int n, const float *x, float factor, bool add, uint16_t *y)
{
    float sum[SP_ROUND];

#pragma omp simd
    for (int i = 0; i < n; i++)
        sum[i] = factor * x[i];
    if (add) {
#pragma omp simd
        for (int i = 0; i < n; i++)
            sum[i] = factor * x[i] + sp_bf16_value(y[i]);
    }
#pragma omp simd
    for (int i = 0; i < n; i++)
        y[i] = rounded(sum[i]);
}

V_INLINE void store_f32(int n, const float *x, float factor, bool add, float *y)
{
    if (add) {
#pragma omp simd
        for (int i = 0; i < n; i++)
            y[i] += factor * x[i];
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++)
            y[i] = factor * x[i];
    }
}

SP_TARGET static void store_rows(const struct sp_tile_store *t)
{
    const enum sp_dtype type = t->type;
    const int rows = t->rows, d = t->d;
    const float *x = t->x;
    const size_t ld = t->ld;
    void *y = t->y;

    for (int r = 0; r < rows; r++, x += t->ldx) {
        float f = t->factor ? t->factor[r] : t->scale;

        row_ahead(type, r, rows, d, y, ld, 1);
        if (type == SP_F32)
            store_f32(d, x, f, t->add, (float *)y + (size_t)r * ld);
        for (int i = 0; type == SP_BF16 && i < d; i += SP_ROUND)
            store_bf16(d - i < SP_ROUND ? d - i : SP_ROUND, x + i, f, t->add,
                       (uint16_t *)y + (size_t)r * ld + i);
    }
}
