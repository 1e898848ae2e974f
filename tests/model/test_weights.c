/* Blocks to and from files: every element in its place, both styles, tied and untied. */
#include "odd_models.h"
#include "support.h"
#include "model/files/weights.h"
#include <errno.h>
#include <math.h>

/* Odd sizes; wide enough in one case for a transposition in several bands. */
static const struct sp_model models[] = {
    ODD_GPT2,  ODD_GPT2_UNTIED, GPT2_MODEL("gpt2 wide", 1, 333, 9, 37, 1601, 7, 2, .tied = false),
    ODD_LLAMA, ODD_LLAMA_TIED,  ODD_QWEN,
};

/* Distinct for every tensor (k) and place [r, c] of it. */
static float value(int k, int r, int c)
{
    return (float)(k + 1) + 1e-3f * (float)r + (float)sin(c + 0.5 * k) * 1e-4f;
}

struct fill_arg {
    const struct sp_params *p;
    float *w;
};

static void fill_tensor(void *arg, const struct sp_parameter *t)
{
    struct fill_arg *a = arg;

    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->cols; c++)
            a->w[t->offset + (size_t)r * (size_t)t->cols + (size_t)c] =
                value((int)(t - a->p->tensors), r, c);
    }
}

/* A block with the values above, zero between tensors. */
static float *filled(const struct sp_params *p, enum sp_block_kind kind, int layer)
{
    float *w = calloc(sp_block_elements(&p->model, kind) + 1, sizeof *w);
    struct fill_arg arg = {p, w};

    must(w != NULL, "calloc");
    sp_block_each(p, kind, layer, fill_tensor, &arg);
    return w;
}

/* Calls fn for every block in the order of the model. */
static void each_block(const struct sp_params *p,
                       void (*fn)(const struct sp_params *, enum sp_block_kind, int, void *),
                       void *arg)
{
    fn(p, SP_BLOCK_TOKENS, -1, arg);
    fn(p, SP_BLOCK_POSITIONS, -1, arg);
    for (int l = 0; l < p->model.layers; l++) {
        fn(p, SP_BLOCK_NORM1, l, arg);
        fn(p, SP_BLOCK_QKV, l, arg);
        fn(p, SP_BLOCK_POST, l, arg);
    }
    fn(p, SP_BLOCK_NORM, -1, arg);
    fn(p, SP_BLOCK_HEAD, -1, arg);
}

static void write_one(const struct sp_params *p, enum sp_block_kind kind, int layer, void *arg)
{
    float *w = filled(p, kind, layer);

    assert_int_equal(sp_weights_write_block(arg, p, kind, layer, w), 0);
    free(w);
}

static void read_one(const struct sp_params *p, enum sp_block_kind kind, int layer, void *arg)
{
    size_t n = sp_block_elements(&p->model, kind);
    float *w = filled(p, kind, layer), *back = malloc((n + 1) * sizeof *back);

    must(back != NULL, "malloc");
    memset(back, 0xff, (n + 1) * sizeof *back);
    assert_int_equal(sp_weights_read_block(arg, p, kind, layer, back), 0);
    assert_memory_equal(w, back, n * sizeof *w);
    assert_true(isnan(back[n]));
    free(w);
    free(back);
}

static void save(const struct sp_params *p, const char *path)
{
    struct sp_st_writer *out;

    assert_int_equal(sp_st_writer_create_in(NULL, path, 0, &out), 0);
    assert_int_equal(sp_weights_declare(out, p), 0);
    each_block(p, write_one, out);
    assert_int_equal(sp_st_writer_finish(out), 0);
}

/* The file itself, element by element: [in, out] for GPT-2's Conv1D, [out, in] elsewhere. */
static size_t check_file(const struct sp_params *p, const struct sp_st_file *st)
{
    size_t total = 0;

    assert_int_equal(st->n, p->n);
    for (int k = 0; k < p->n; k++) {
        const struct sp_parameter *t = &p->tensors[k];
        const struct sp_st_entry *e = sp_st_find(st, t->name);
        size_t rows = (size_t)t->rows, cols = (size_t)t->cols;
        bool conv = strstr(t->name, ".c_") && strstr(t->name, ".weight");
        float *x = malloc(rows * cols * sizeof *x);

        assert_non_null(e);
        must(x != NULL, "malloc");
        assert_int_equal(e->ndim, t->is_vector ? 1 : 2);
        assert_true(e->shape[0] == (t->is_vector || conv ? t->cols : t->rows));
        if (!t->is_vector)
            assert_true(e->shape[1] == (conv ? t->rows : t->cols));
        assert_int_equal(sp_st_read(st, e, x), 0);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < cols; c++) {
                float got = conv ? x[c * rows + r] : x[r * cols + c];

                if (got != value(k, (int)r, (int)c))
                    fail_msg("%s[%zu, %zu] is %g", t->name, r, c, got);
            }
        }
        total += rows * cols;
        free(x);
    }
    return total;
}

SCRATCH_TEST(round_trip)
{
    const char *path = in_scratch("model.safetensors");

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct sp_st_file st;
        struct sp_params p;

        assert_int_equal(sp_params_create(&models[i], &p), 0);
        save(&p, path);
        assert_int_equal(sp_st_open(path, &st), 0);
        assert_int_equal(sp_weights_check(&st, &p), 0);
        printf("%-12s %zu elements in place\n", models[i].name, check_file(&p, &st));
        each_block(&p, read_one, &st);
        sp_st_close(&st);
        sp_params_destroy(&p);
    }
}

/* ---- files of others -------------------------------------------------------------------- */

/* How a file departs from what we write. */
struct departure {
    bool bare;           /* no "transformer." or "model." */
    const char *leave;   /* a tensor left out */
    const char *reshape; /* a tensor that loses its last row */
    const char *add;     /* a tensor of another place */
    const char *dtype;   /* of every tensor; NULL: F32. Reals hold the value 1 */
    const char *again;   /* a tensor that is there once more, under the name `as`, at the end */
    const char *as;
    bool differs; /* its last element is not 1 */
};

static int width_of(const struct departure *d)
{
    return !d->dtype ? 4 : !strcmp(d->dtype, "F64") ? 8 : 2;
}

static const char *bare_name(const char *name, bool bare)
{
    const char *dot = strchr(name, '.');

    return bare && strncmp(name, "lm_head", 7) ? dot + 1 : name;
}

/* A tensor of the header; `end` grows by its bytes. */
static uint64_t describe(char *to, const struct sp_parameter *t, const char *name, int rows,
                         const struct departure *d, uint64_t *end)
{
    int cols = t->transposed ? t->rows : t->cols;
    uint64_t begin = *end, n;

    *end += (uint64_t)rows * (uint64_t)cols * (uint64_t)width_of(d);
    n = (uint64_t)sprintf(to, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name,
                          d->dtype ? d->dtype : "F32");
    n += (uint64_t)(t->is_vector ? sprintf(to + n, "%d", cols)
                                 : sprintf(to + n, "%d,%d", rows, cols));
    return n + (uint64_t)sprintf(to + n, "],\"data_offsets\":[%llu,%llu]}",
                                 (unsigned long long)begin, (unsigned long long)*end);
}

static void write_foreign(const struct sp_params *p, const struct departure *d, const char *path)
{
    char *header = malloc(200 * (size_t)(p->n + 2));
    int width = width_of(d);
    uint64_t len, end = 0;
    FILE *f;

    must(header != NULL, "malloc");
    len = (uint64_t)sprintf(header, "{\"__metadata__\":{}");
    for (int k = 0; k < p->n; k++) {
        const struct sp_parameter *t = &p->tensors[k];
        int rows = t->transposed ? t->cols : t->rows;

        if (d->leave && !strcmp(t->name, d->leave))
            continue;
        if (d->reshape && !strcmp(t->name, d->reshape))
            rows--;
        len += describe(header + len, t, bare_name(t->name, d->bare), rows, d, &end);
    }
    for (int k = 0; k < p->n && d->again; k++)
        if (!strcmp(p->tensors[k].name, d->again))
            len += describe(header + len, &p->tensors[k], d->as, p->tensors[k].rows, d, &end);
    if (d->add) {
        len += (uint64_t)sprintf(header + len,
                                 ",\"%s\":{\"dtype\":\"U8\",\"shape\":[3],"
                                 "\"data_offsets\":[%llu,%llu]}",
                                 d->add, (unsigned long long)end, (unsigned long long)end + 3);
        end += 3;
    }
    header[len++] = '}';
    f = fopen(path, "wb");
    must(f && fwrite(&len, 8, 1, f) == 1 && fwrite(header, len, 1, f) == 1, "fwrite");
    for (uint64_t i = 0; i < end; i += (uint64_t)width) { /* 1.0, in each dtype */
        uint64_t one = !d->dtype                  ? 0x3f800000
                       : !strcmp(d->dtype, "F16") ? 0x3c00
                       : !strcmp(d->dtype, "F64") ? UINT64_C(0x3ff0000000000000)
                                                  : 0x3f80;

        must(fwrite(&one, i + (uint64_t)width > end ? 1 : (size_t)width, 1, f) == 1, "fwrite");
    }
    if (d->differs)
        must(!fseek(f, -width, SEEK_CUR) && fputc(1, f) == 1 && !fseek(f, 0, SEEK_END), "fseek");
    must(!fclose(f), "fclose");
    free(header);
    must(truncate(path, (long)(8 + len + end)) == 0, "truncate");
}

static void all_ones(const struct sp_params *p, enum sp_block_kind kind, int layer, void *arg)
{
    size_t n = sp_block_elements(&p->model, kind), count = 0, expected = 0;
    float *w = malloc((n + 1) * sizeof *w);

    must(w != NULL, "malloc");
    assert_int_equal(sp_weights_read_block(arg, p, kind, layer, w), 0);
    for (size_t i = 0; i < n; i++) {
        assert_true(w[i] == 0.0f || w[i] == 1.0f);
        count += w[i] == 1.0f;
    }
    for (int k = 0; k < p->n; k++)
        if (p->tensors[k].block == kind &&
            (p->tensors[k].layer < 0 || p->tensors[k].layer == layer))
            expected += (size_t)p->tensors[k].rows * (size_t)p->tensors[k].cols;
    assert_true(count == expected);
    free(w);
}

#define WTE "transformer.wte.weight"
#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

static const struct {
    int model;
    struct departure d;
    const char *word; /* of the refusal; NULL: accepted */
} foreign[] = {
    {0, {.bare = false}, NULL},
    {0, {.bare = true}, NULL},
    {1, {.bare = true}, NULL},
    {3, {.bare = true}, NULL},
    {0, {.dtype = "F16"}, NULL},
    {3, {.dtype = "BF16"}, NULL},
    {0, {.add = "transformer.h.1.attn.bias"}, NULL},
    {0, {.add = "h.1.attn.masked_bias", .bare = true}, NULL},
    {1, {.dtype = "F64"}, NULL},
    {3, {.dtype = "F64", .bare = true}, NULL},
    /* tied: the table is stored as the head alone */
    {0, {.leave = WTE, .again = WTE, .as = HEAD}, NULL},
    {4, {.leave = EMBED, .again = EMBED, .as = HEAD, .bare = true, .dtype = "F64"}, NULL},
    {1, {.leave = WTE}, "tensor transformer.wte.weight is missing"},
    /* the head is redundant, or another */
    {0, {.again = WTE, .as = HEAD}, NULL},
    {4, {.again = EMBED, .as = HEAD, .dtype = "BF16"}, NULL},
    {0,
     {.again = WTE, .as = HEAD, .differs = true},
     "lm_head.weight differs from transformer.wte.weight"},
    {4,
     {.again = EMBED, .as = HEAD, .bare = true, .differs = true},
     "lm_head.weight differs from embed_tokens.weight"},
    {4, {.again = EMBED, .as = HEAD, .dtype = "F16", .differs = true}, "lm_head.weight differs"},
    {0, {.add = HEAD}, "lm_head.weight differs"}, /* of another shape */
    /* one tensor under two names */
    {0, {.again = WTE, .as = "wte.weight"}, "has both transformer.wte.weight and wte.weight"},
    {0,
     {.again = "transformer.h.2.ln_1.bias", .as = "transformer.h.2.ln_1.bias", .bare = true},
     "has both transformer.h.2.ln_1.bias and h.2.ln_1.bias"},
    {3,
     {.again = "model.layers.1.mlp.up_proj.weight", .as = "layers.1.mlp.up_proj.weight"},
     "has both model.layers.1.mlp.up_proj.weight and layers.1.mlp.up_proj.weight"},
    {3, {.add = "model.layers.0.self_attn.rotary_emb.inv_freq"}, NULL},
    {0, {.add = "transformer.h.3.ln_1.weight"}, "h.3.ln_1.weight has no place"},
    {3, {.add = "model.layers.0.self_attn.q_proj.bias"}, "q_proj.bias has no place"},
    {0, {.leave = WTE}, "tensor transformer.wte.weight is missing"},
    {0, {.leave = "transformer.h.2.mlp.c_proj.bias", .bare = true}, "c_proj.bias is missing"},
    {1, {.leave = HEAD}, "lm_head.weight is missing"},
    {3, {.leave = HEAD}, "lm_head.weight is missing"},
    {4, {.leave = "model.layers.1.self_attn.k_proj.weight"}, "k_proj.weight is missing"},
    {0, {.reshape = "transformer.wpe.weight"}, "shape [12, 15], the model needs [13, 15]"},
    {0,
     {.reshape = "transformer.h.0.attn.c_attn.weight"},
     "shape [14, 45], the model needs [15, 45]"},
    {3,
     {.reshape = "model.layers.1.mlp.up_proj.weight", .bare = true},
     "layers.1.mlp.up_proj.weight has shape [4, 7], the model needs [5, 7]"},
    {0, {.dtype = "I16"}, "is I16, F32, F16, BF16 or F64 would do"},
};

/* Values that are no numbers, in each type, are found by whichever share has them. */
SCRATCH_TEST(values_are_checked)
{
    static const struct {
        const char *dtype;
        uint64_t bits;
        const char *word;
    } bad[] = {{NULL, 0x7fc00000, "holds NaN at element 1"},
               {NULL, 0xff800000, "holds infinity at element 1"},
               {"F16", 0x7e00, "holds NaN at element 1"},
               {"F16", 0x7c00, "holds infinity at element 1"},
               {"BF16", 0xff80, "holds infinity at element 1"},
               {"F64", UINT64_C(0x7ff8000000000000), "holds NaN at element 1"},
               {"F64", UINT64_C(0x7e37e43c8800759c), "too large for f32 at element 1"}};
    const char *path = in_scratch("model.safetensors");
    struct sp_params p;

    assert_int_equal(sp_params_create(&models[0], &p), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct departure d = {.dtype = bad[i].dtype};
        int width = width_of(&d), found = 0;
        const struct sp_st_entry *e;
        struct sp_st_file st;
        FILE *f;

        write_foreign(&p, &d, path);
        assert_int_equal(sp_st_open(path, &st), 0);
        for (int shares = 1; shares <= 3; shares++)
            for (int share = 0; share < shares; share++)
                assert_int_equal(sp_weights_check_values(&st, &p, share, shares), 0);
        e = sp_st_find(&st, "transformer.h.1.mlp.c_fc.weight");
        f = fopen(path, "r+b");
        must(
            f &&
                !fseek(f, (long)(st.shards[0].data_start + e->begin + (uint64_t)width), SEEK_SET) &&
                fwrite(&bad[i].bits, (size_t)width, 1, f) == 1 && !fclose(f),
            "fwrite");
        for (int shares = 1; shares <= 3; shares++)
            for (int share = 0; share < shares; share++) {
                struct capture c;
                int rc;

                rc = CAPTURED(&c, sp_weights_check_values(&st, &p, share, shares));
                if (!rc)
                    continue;
                assert_int_equal(rc, -EINVAL);
                assert_said(c.text, "mlp.c_fc.weight", "a bad value");
                assert_said(c.text, bad[i].word, "a bad value");
                found++;
            }
        assert_int_equal(found, 3);
        sp_st_close(&st);
    }
    sp_params_destroy(&p);
}

SCRATCH_TEST(files_of_others)
{
    const char *path = in_scratch("model.safetensors");
    int accepted = 0, refused = 0;

    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        struct sp_st_file st;
        struct sp_params p;
        struct capture c;
        int rc;

        assert_int_equal(sp_params_create(&models[foreign[i].model], &p), 0);
        write_foreign(&p, &foreign[i].d, path);
        assert_int_equal(sp_st_open(path, &st), 0);
        rc = CAPTURED(&c, sp_weights_check(&st, &p));
        if (foreign[i].word) {
            assert_said(c.text, foreign[i].word, "foreign file");
            assert_non_null(strstr(c.text, path));
            assert_int_equal(rc, -EINVAL);
            refused++;
        } else {
            if (rc)
                fail_msg("file %zu: %s", i, c.text);
            each_block(&p, all_ones, &st);
            accepted++;
        }
        sp_st_close(&st);
        sp_params_destroy(&p);
    }
    printf("%d files accepted, %d refused\n", accepted, refused);
}

/* ---- shards ------------------------------------------------------------------------------ */

/* The same tensors in any number of files; one that every tensor has by itself among them. */
SCRATCH_TEST(in_shards)
{
    static const uint64_t limits[] = {1, 100, 1000, 5000, 1000000};
    const char *path = in_scratch("model.safetensors");
    const char *index = in_scratch("model.safetensors.index.json");
    struct sp_params p;

    assert_int_equal(sp_params_create(&models[0], &p), 0);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        int shards = sp_weights_shards(&p, limits[i]);
        struct sp_st_writer *out;
        struct sp_st_file st;

        assert_int_equal(sp_st_writer_create_in(NULL, path, limits[i], &out), 0);
        assert_int_equal(sp_weights_declare(out, &p), 0);
        each_block(&p, write_one, out);
        assert_int_equal(sp_st_writer_finish(out), 0);
        assert_int_equal(shards > 1 ? sp_st_open_index(index, &st) : sp_st_open(path, &st), 0);
        assert_int_equal(st.n_shards, shards);
        assert_int_equal(sp_weights_check(&st, &p), 0);
        check_file(&p, &st);
        each_block(&p, read_one, &st);
        printf("at most %llu bytes: %d shards\n", (unsigned long long)limits[i], shards);
        for (int k = 0; k < st.n_shards; k++)
            unlink(st.shards[k].path);
        unlink(index);
        sp_st_close(&st);
    }
    assert_int_equal(sp_weights_shards(&p, 1), p.n);
    assert_int_equal(sp_weights_shards(&p, 0), 1);
    sp_params_destroy(&p);
    assert_int_equal(files_in(scratch), 0);
}

/* A transposed element follows the definition literally: file[in][out] == block[out][in]. */
SCRATCH_TEST(transposition_literally)
{
    const struct sp_model *m = &models[0];
    size_t n = sp_block_elements(m, SP_BLOCK_QKV),
           f = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_UP);
    const char *path = in_scratch("model.safetensors");
    struct sp_st_file st;
    struct sp_params p;
    float file[15 * 45], *w = malloc(n * sizeof *w);

    must(w != NULL, "malloc");
    assert_int_equal(sp_params_create(m, &p), 0);
    save(&p, path);
    assert_int_equal(sp_st_open(path, &st), 0);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "transformer.h.1.attn.c_attn.weight"), file),
                     0);
    assert_int_equal(sp_weights_read_block(&st, &p, SP_BLOCK_QKV, 1, w), 0);
    for (int out = 0; out < 45; out++)
        for (int in = 0; in < 15; in++)
            assert_true(w[out * 15 + in] == file[in * 45 + out]);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "transformer.h.1.mlp.c_fc.weight"), file), 0);
    w = realloc(w, sp_block_elements(m, SP_BLOCK_POST) * sizeof *w);
    must(w != NULL, "realloc");
    assert_int_equal(sp_weights_read_block(&st, &p, SP_BLOCK_POST, 1, w), 0);
    for (int out = 0; out < 7; out++)
        for (int in = 0; in < 15; in++)
            assert_true(w[f + (size_t)(out * 15 + in)] == file[in * 7 + out]);
    sp_st_close(&st);
    sp_params_destroy(&p);
    free(w);
}
