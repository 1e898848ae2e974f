/*
 * The product of two packed tiles of attention on tiles of AMX: C in blocks of two by two, so that each
 * load serves two dots. Rows are rounded up to whole tiles.
 *
 * Words of A that are not along its rows (P, dS: a_word > 1) are turned first, all of a block of rows. A sum
 * that does not fill the last tile goes on with zeros, as what lies there may be no number.
 */
#include "kernels/cpu/attention/amx.h"

enum { BLOCK = 2 * SP_AMX_ROWS, MOST_WORDS = SP_KEY_TILE / 2 };

/* The left side of a block of rows, and the last words of the right side of one of columns. */
struct staged {
    uint32_t left[BLOCK * MOST_WORDS], right[SP_AMX_WORDS * BLOCK];
} __attribute__((aligned(64)));

static const struct sp_amx_config whole_tiles = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

V_INLINE __mmask16 first(int n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
}

/* out(16,ldo) = (16 words, 16 rows)^T, of which there are n words. */
V_INLINE void turn(int n, const uint32_t *a, size_t a_word, uint32_t *out, size_t ldo)
{
    __m512i x[16], y[16];

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = i < n ? _mm512_loadu_si512(a + (size_t)i * a_word) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            x[i + 2 * k] = _mm512_unpacklo_epi64(y[i + k], y[i + k + 2]);
            x[i + 2 * k + 1] = _mm512_unpackhi_epi64(y[i + k], y[i + k + 2]);
        }
        /* x[4 i + k]: rows k, k + 4, k + 8, k + 12 of words 4 i .. 4 i + 3, a lane each */
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i a0 = _mm512_shuffle_i32x4(x[k], x[4 + k], 0x88);
        __m512i a1 = _mm512_shuffle_i32x4(x[8 + k], x[12 + k], 0x88);
        __m512i b0 = _mm512_shuffle_i32x4(x[k], x[4 + k], 0xdd);
        __m512i b1 = _mm512_shuffle_i32x4(x[8 + k], x[12 + k], 0xdd);

        _mm512_store_si512(out + (size_t)k * ldo, _mm512_shuffle_i32x4(a0, a1, 0x88));
        _mm512_store_si512(out + (size_t)(k + 4) * ldo, _mm512_shuffle_i32x4(b0, b1, 0x88));
        _mm512_store_si512(out + (size_t)(k + 8) * ldo, _mm512_shuffle_i32x4(a0, a1, 0xdd));
        _mm512_store_si512(out + (size_t)(k + 12) * ldo, _mm512_shuffle_i32x4(b0, b1, 0xdd));
    }
}

/* Words start .. end-1 of `rows` rows of A from row r on, turned; the last 16 filled up with zeros. */
SP_TARGET static void turn_left(const struct sp_product *p, int r, int rows, int start, int end,
                                uint32_t *left)
{
    for (int i = 0; i < rows; i += SP_AMX_ROWS)
        for (int w = start; w < end; w += SP_AMX_WORDS)
            turn(end - w, p->a + (size_t)(r + i) + (size_t)w * p->a_word, p->a_word,
                 left + (size_t)i * MOST_WORDS + (w - start), MOST_WORDS);
}

/* The last n words of `rows` rows of A. */
SP_TARGET static void fill_left(const struct sp_product *p, int r, int rows, int w, int n,
                                uint32_t *left)
{
    for (int i = 0; i < rows; i++)
        _mm512_store_si512(
            left + (size_t)i * MOST_WORDS,
            _mm512_maskz_loadu_epi32(first(n), p->a + (size_t)(r + i) * p->a_row + (size_t)w));
}

/* The last n words of `columns` columns of B from column c on. */
SP_TARGET static void fill_right(const struct sp_product *p, int w, int n, int c, int columns,
                                 uint32_t *right)
{
    for (int i = 0; i < SP_AMX_WORDS; i++)
        for (int j = 0; j < columns; j += 16)
            _mm512_store_si512(
                right + (size_t)i * BLOCK + j,
                i < n ? _mm512_loadu_si512(p->b + (size_t)(w + i) * p->ldb + (size_t)(c + j))
                      : _mm512_setzero_si512());
}

/* One step of 16 words: tiles 0, 1 of A and 2, 3 of B, to 4 .. 7 of C, row by row. */
V_INLINE void step(const int rows, const int columns, const uint32_t *a, size_t lda,
                   const uint32_t *b, size_t ldb)
{
    sp_amx_load(0, a, 4 * lda);
    sp_amx_load(2, b, 4 * ldb);
    sp_amx_dot(4, 0, 2);
    if (columns > 1) {
        sp_amx_load(3, b + 16, 4 * ldb);
        sp_amx_dot(5, 0, 3);
    }
    if (rows > 1) {
        sp_amx_load(1, a + 16 * lda, 4 * lda);
        sp_amx_dot(6, 1, 2);
    }
    if (rows > 1 && columns > 1)
        sp_amx_dot(7, 1, 3);
}

/* A block of C: its first row and column, and the words that its sum takes: start .. end-1. */
struct block {
    int r, c, start, end;
};

V_INLINE void block(const int rows, const int columns, const struct sp_product *p,
                    const struct block of, struct staged *s)
{
    const int r = of.r, c = of.c, start = of.start, end = of.end;
    float *to = p->c + (size_t)r * p->ldc + (size_t)c;
    const bool turned = p->a_word > 1;
    const uint32_t *a = turned ? s->left : p->a + (size_t)r * p->a_row + (size_t)start;
    size_t lda = turned ? MOST_WORDS : p->a_row, ldc = 4 * p->ldc;
    int w = start;

    if (p->add) {
        sp_amx_load(4, to, ldc);
        if (columns > 1)
            sp_amx_load(5, to + 16, ldc);
        if (rows > 1)
            sp_amx_load(6, to + 16 * p->ldc, ldc);
        if (rows > 1 && columns > 1)
            sp_amx_load(7, to + 16 * p->ldc + 16, ldc);
    } else {
        sp_amx_zero(4);
        sp_amx_zero(5);
        sp_amx_zero(6);
        sp_amx_zero(7);
    }
    for (; w + SP_AMX_WORDS <= end; w += SP_AMX_WORDS, a += SP_AMX_WORDS)
        step(rows, columns, a, lda, p->b + (size_t)w * p->ldb + (size_t)c, p->ldb);
    if (w < end) {
        fill_right(p, w, end - w, c, 16 * columns, s->right);
        step(rows, columns, turned ? a : s->left, MOST_WORDS, s->right, BLOCK);
    }
    sp_amx_store(4, to, ldc);
    if (columns > 1)
        sp_amx_store(5, to + 16, ldc);
    if (rows > 1)
        sp_amx_store(6, to + 16 * p->ldc, ldc);
    if (rows > 1 && columns > 1)
        sp_amx_store(7, to + 16 * p->ldc + 16, ldc);
}

/* One or two tiles of rows from row r on. */
V_INLINE void block_row(const int tiles, const struct sp_product *p, int r, struct staged *s)
{
    int rows = p->rows - r < BLOCK ? p->rows - r : BLOCK;
    int blind = r > p->diag ? r - p->diag : 0; /* queries that do not see key r */
    int from = 0, start = 0, end = p->words, c;

    if (p->kind == SP_KEYS_QUERIES)
        from = blind / 16 * 16;
    if (p->kind == SP_OVER_QUERIES)
        start = (blind / 2 < end ? blind / 2 : end) / SP_AMX_WORDS * SP_AMX_WORDS;
    if (p->kind == SP_OVER_KEYS && (r + rows + p->diag + 1) / 2 < end)
        end = r + rows + p->diag > 0 ? (r + rows + p->diag + 1) / 2 : 0;
    if (p->a_word > 1)
        turn_left(p, r, 16 * tiles, start, end, s->left);
    else if ((end - start) % SP_AMX_WORDS)
        fill_left(p, r, 16 * tiles, end - (end - start) % SP_AMX_WORDS,
                  (end - start) % SP_AMX_WORDS, s->left);
    for (c = from; c + 16 < p->columns; c += BLOCK)
        block(tiles, 2, p, (struct block){r, c, start, end}, s);
    if (c < p->columns)
        block(tiles, 1, p, (struct block){r, c, start, end}, s);
}

/* The configuration of whoever had one, the product's libraries perhaps, is put back, but not what was in the tiles. */
SP_TARGET static void product_amx(const struct sp_product *p)
{
    struct sp_amx_config before;
    struct staged s;
    int r = 0;

    sp_amx_configured(&before);
    sp_amx_configure(&whole_tiles);
    for (; r + SP_AMX_ROWS < p->rows; r += BLOCK)
        block_row(2, p, r, &s);
    if (r < p->rows)
        block_row(1, p, r, &s);
    sp_amx_configure(&before);
}
