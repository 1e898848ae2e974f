/*
 * The product of two packed tiles. A block of C lies in registers while its sum runs: for each word,
 * one vector load for each column of vectors, one broadcast for each row.
 */
enum { SP_BLOCK_ROWS = 6 };

#if SP_PAIR == 1
#define v_dot(sum, a, b) v_fma(a, b, sum)
#endif

/* The first elements of a block, and the words that its sum takes. */
struct block {
    const uint32_t *a, *b;
    float *c;
    int words;
};

V_INLINE void block(const int rows, const int vectors, const struct sp_product *p,
                    const struct block *first)
{
    const uint32_t *a = first->a, *b = first->b;
    float *c = first->c;
    vec sum[SP_BLOCK_ROWS][SP_BLOCK_VECTORS];
    size_t ldc = p->ldc;

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sum[i][j] = p->add ? v_load(c + (size_t)i * ldc + j * SP_LANES) : v_zero();
    for (int words = first->words; words > 0; words--) {
        vec right[SP_BLOCK_VECTORS];

#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            right[j] = v_words(b + j * SP_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vec left = v_word(a + (size_t)i * p->a_row);

#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                sum[i][j] = v_dot(sum[i][j], left, right[j]);
        }
        a += p->a_word;
        b += p->ldb;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            v_store(c + (size_t)i * ldc + j * SP_LANES, sum[i][j]);
}

#define SP_BLOCK(rows, vectors)                                                                    \
    __attribute__((noinline)) SP_TARGET static void block_##rows##_##vectors(                      \
        const struct sp_product *p, const struct block *first)                                     \
    {                                                                                              \
        block(rows, vectors, p, first);                                                            \
    }
#define SP_BLOCKS(vectors)                                                                         \
    SP_BLOCK(1, vectors)                                                                           \
    SP_BLOCK(2, vectors)                                                                           \
    SP_BLOCK(3, vectors)                                                                           \
    SP_BLOCK(4, vectors)                                                                           \
    SP_BLOCK(5, vectors)                                                                           \
    SP_BLOCK(6, vectors)
#define SP_BLOCK_NAMES(v)                                                                          \
    {                                                                                              \
        block_1_##v, block_2_##v, block_3_##v, block_4_##v, block_5_##v, block_6_##v               \
    }

SP_BLOCKS(1)
SP_BLOCKS(2)
#if SP_BLOCK_VECTORS == 4
SP_BLOCKS(3)
SP_BLOCKS(4)
#endif

typedef void (*block_fn)(const struct sp_product *, const struct block *);

/* By vectors, then rows. */
static const block_fn blocks[SP_BLOCK_VECTORS][SP_BLOCK_ROWS] = {
    SP_BLOCK_NAMES(1),
    SP_BLOCK_NAMES(2),
#if SP_BLOCK_VECTORS == 4
    SP_BLOCK_NAMES(3),
    SP_BLOCK_NAMES(4),
#endif
};

/* All rows of the column vectors lo .. hi-1. */
static void panel(const struct sp_product *p, int lo, int hi)
{
    for (int r = 0; r < p->rows; r += SP_BLOCK_ROWS) {
        int rows = p->rows - r < SP_BLOCK_ROWS ? p->rows - r : SP_BLOCK_ROWS;
        int blind = r > p->diag ? r - p->diag : 0; /* queries that do not see key r */
        int from = lo, start = 0, end = p->words;

        if (p->kind == SP_KEYS_QUERIES && blind / SP_LANES > from)
            from = blind / SP_LANES;
        if (p->kind == SP_OVER_QUERIES)
            start = blind / SP_PAIR < end ? blind / SP_PAIR : end;
        if (p->kind == SP_OVER_KEYS && (r + rows + p->diag + SP_PAIR - 1) / SP_PAIR < end)
            end = (r + rows + p->diag + SP_PAIR - 1) / SP_PAIR;
        if (from < hi)
            blocks[hi - from - 1][rows - 1](
                p, &(struct block){.a = p->a + (size_t)r * p->a_row + (size_t)start * p->a_word,
                                   .b = p->b + (size_t)start * p->ldb + (size_t)from * SP_LANES,
                                   .c = p->c + (size_t)r * p->ldc + (size_t)from * SP_LANES,
                                   .words = end - start});
    }
}

static void product(const struct sp_product *p)
{
    int vectors = p->columns / SP_LANES;
    int panels = (vectors + SP_BLOCK_VECTORS - 1) / SP_BLOCK_VECTORS;

    for (int i = 0; i < panels; i++)
        panel(p, vectors * i / panels, vectors * (i + 1) / panels);
}
