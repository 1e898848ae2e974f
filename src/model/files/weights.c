/* Blocks to and from Hugging Face weight files. */
#include "model/files/weights.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A transposition buffers whole rows of the file: as many as fit into so many floats, but at least
 * one. */
#define BAND_FLOATS (256 << 10)

/* The side of the squares in which a band is transposed, so that a square stays in the L1 cache. */
#define TILE 32

/* ---- names ------------------------------------------------------------------------------ */

/* The name without its leading "transformer." or "model.", as files of the bare model have it. */
static const char *bare_name(const char *name)
{
    static const char *const prefixes[] = {"transformer.", "model."};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t n = strlen(prefixes[i]);

        if (!strncmp(name, prefixes[i], n))
            return name + n;
    }
    return name;
}

#define HEAD "lm_head.weight"

/* True for the embedding table that is also the head: files may have it under either name. */
static bool is_tied_table(const struct sp_params *p, const struct sp_parameter *t)
{
    return p->model.tied && t->block == SP_BLOCK_TOKENS;
}

/* Finds a tensor by its name or its bare name; a tied table that has neither, by the head's name.
 * Returns NULL if it is absent or, with *rc < 0, if both names are there, since one would be
 * ignored. */
static const struct sp_st_entry *find_tensor(const struct sp_st_file *st, const struct sp_params *p,
                                             const struct sp_parameter *t, int *rc)
{
    const struct sp_st_entry *e = sp_st_find(st, t->name), *other = NULL;

    *rc = 0;
    if (bare_name(t->name) != t->name)
        other = sp_st_find(st, bare_name(t->name));
    if (e && other) {
        *rc = sp_error(EINVAL, "%s: has both %s and %s, which are one tensor of the model",
                       st->path, t->name, bare_name(t->name));
        return NULL;
    }
    if (!e && !other && is_tied_table(p, t))
        return sp_st_find(st, HEAD);
    return e ? e : other;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && !strcmp(name + n - k, end);
}

/* Tensors that hold no parameter: causal masks, rotary frequencies, the head when it is tied. */
static bool is_buffer(const char *name, const struct sp_model *m)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq") || (m->tied && !strcmp(name, HEAD));
}

/* ---- checking --------------------------------------------------------------------------- */

/* Shape in the file; returns the number of dimensions. */
static int file_shape(const struct sp_parameter *t, int64_t shape[2])
{
    if (t->is_vector) {
        shape[0] = t->cols;
        return 1;
    }
    shape[0] = t->transposed ? t->cols : t->rows;
    shape[1] = t->transposed ? t->rows : t->cols;
    return 2;
}

static const char *print_shape(int ndim, const int64_t *shape, char out[200])
{
    size_t n = (size_t)snprintf(out, 200, "[");

    for (int i = 0; i < ndim; i++)
        n += (size_t)snprintf(out + n, 200 - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(out + n, 200 - n, "]");
    return out;
}

/* The entry of a tensor, checked; NULL with one line on stderr otherwise. */
static const struct sp_st_entry *
find_checked(const struct sp_st_file *st, const struct sp_params *p, const struct sp_parameter *t)
{
    char has[200], needs[200];
    int64_t shape[2];
    int ndim = file_shape(t, shape), rc;
    const struct sp_st_entry *e = find_tensor(st, p, t, &rc);

    if (!e) {
        if (!rc)
            sp_error(EINVAL, "%s: tensor %s is missing", st->path, t->name);
        return NULL;
    }
    if (e->ndim != ndim || memcmp(e->shape, shape, (size_t)ndim * sizeof *shape)) {
        sp_error(EINVAL, "%s: tensor %s has shape %s, the model needs %s", sp_st_path(st, e),
                 e->name, print_shape(e->ndim, e->shape, has), print_shape(ndim, shape, needs));
        return NULL;
    }
    if (!sp_st_is_real(e->dtype)) {
        sp_error(EINVAL, "%s: tensor %s is %s, " SP_ST_REALS " would do", sp_st_path(st, e),
                 e->name, e->dtype);
        return NULL;
    }
    return e;
}

static bool is_parameter(const char *name, const struct sp_params *p)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(name, p->tensors[i].name) || !strcmp(name, bare_name(p->tensors[i].name)))
            return true;
    return false;
}

/* A tied model has one table: a head in the file that differs from it would be ignored. */
static int check_tied(const struct sp_st_file *st, const struct sp_params *p)
{
    const struct sp_st_entry *head = sp_st_find(st, HEAD), *table;
    bool same = true;
    int rc;

    if (!p->model.tied || !head)
        return 0;
    table = find_checked(st, p, &p->tensors[0]);
    if (table == head)
        return 0;
    rc = table ? sp_st_same(st, table, head, &same) : -EINVAL;
    if (!rc && !same)
        rc = sp_error(
            EINVAL,
            "%s: lm_head.weight differs from %s, which tie_word_embeddings makes the head; "
            "set that to false in config.json, or remove lm_head.weight",
            sp_st_path(st, head), table->name);
    return rc;
}

int sp_weights_check(const struct sp_st_file *st, const struct sp_params *p)
{
    for (int i = 0; i < p->n; i++)
        if (!find_checked(st, p, &p->tensors[i]))
            return -EINVAL;
    for (int i = 0; i < st->n; i++) {
        const char *name = st->entries[i].name;

        if (!is_buffer(name, &p->model) && !is_parameter(name, p))
            return sp_error(EINVAL, "%s: tensor %.80s has no place in the model (%d layers%s)",
                            sp_st_path(st, &st->entries[i]), name, p->model.layers,
                            p->model.tied ? ", tied head" : "");
    }
    return check_tied(st, p);
}

/* ---- values ----------------------------------------------------------------------------- */

/* The first of n that is no finite number; n: all are. */
static size_t first_not_finite(const float *x, size_t n)
{
    const uint32_t infinite = 0x7f800000;
    uint32_t bits, any = 0;

    for (size_t i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        any |= (bits & infinite) == infinite;
    }
    for (size_t i = 0; any && i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return n;
}

/* Elements first .. end-1 of a tensor. */
static int check_values(const struct sp_st_file *st, const struct sp_st_entry *e, uint64_t first,
                        uint64_t end, float *x)
{
    while (first < end) {
        size_t n = end - first < BAND_FLOATS ? (size_t)(end - first) : BAND_FLOATS, bad;
        int rc = sp_st_read_part(st, e, first, n, x);

        if (rc)
            return rc;
        bad = first_not_finite(x, n);
        if (bad < n)
            return sp_error(EINVAL,
                            "%s: tensor %s holds %s at element %llu: these weights cannot be "
                            "trained, take a sound copy of them",
                            sp_st_path(st, e), e->name,
                            isnan(x[bad])             ? "NaN"
                            : strcmp(e->dtype, "F64") ? "infinity"
                                                      : "a number too large for f32",
                            (unsigned long long)(first + bad));
        first += n;
    }
    return 0;
}

int sp_weights_check_values(const struct sp_st_file *st, const struct sp_params *p, int share,
                            int shares)
{
    float *x = malloc(BAND_FLOATS * sizeof *x);
    int rc = x ? 0 : sp_error(ENOMEM, "%s: no memory to read its tensors", st->path);

    for (int i = 0; i < p->n && !rc; i++) {
        const struct sp_parameter *t = &p->tensors[i];
        uint64_t n = (uint64_t)t->rows * (uint64_t)t->cols, each = n / (uint64_t)shares + 1;
        uint64_t first = each * (uint64_t)share < n ? each * (uint64_t)share : n;
        const struct sp_st_entry *e = find_checked(st, p, t);

        rc = e ? check_values(st, e, first, n - first < each ? n : first + each, x) : -EINVAL;
    }
    free(x);
    return rc;
}

/* ---- bands of a transposed tensor ------------------------------------------------------- */

/* Rows of the file in a band. */
static int band_rows(const struct sp_parameter *t)
{
    return t->rows < BAND_FLOATS ? BAND_FLOATS / t->rows : 1;
}

/* Moves file rows first .. first+n-1, `band`(n, rows), to or from the block's w(rows, cols). */
static void transpose_band(const struct sp_parameter *t, int first, int n, float *band, float *w,
                           bool to_block)
{
    size_t rows = (size_t)t->rows, cols = (size_t)t->cols;

    for (size_t r0 = 0; r0 < rows; r0 += TILE) {
        size_t r1 = r0 + TILE < rows ? r0 + TILE : rows;

        for (size_t i = 0; i < (size_t)n; i++) {
            float *column = w + (size_t)first + i;

            for (size_t r = r0; r < r1; r++)
                if (to_block)
                    column[r * cols] = band[i * rows + r];
                else
                    band[i * rows + r] = column[r * cols];
        }
    }
}

/* ---- one block -------------------------------------------------------------------------- */

struct transfer {
    const struct sp_st_file *st; /* when reading */
    const struct sp_params *p;
    struct sp_st_writer *out; /* when writing */
    float *w;                 /* the block; only read when writing */
    int rc;                   /* first failure, already reported */
};

/* Transposed tensors go through a buffer of a bounded size, whatever their own. */
static int move_transposed(const struct transfer *x, const struct sp_parameter *t,
                           const struct sp_st_entry *e)
{
    int step = band_rows(t), rc = 0;
    float *band = malloc((size_t)step * (size_t)t->rows * sizeof *band);

    if (!band)
        return sp_error(ENOMEM, "tensor %s: no memory for %d rows of %d floats", t->name, step,
                        t->rows);
    for (int first = 0; first < t->cols && !rc; first += step) {
        int n = t->cols - first < step ? t->cols - first : step;
        size_t start = (size_t)first * (size_t)t->rows, count = (size_t)n * (size_t)t->rows;

        if (e) {
            rc = sp_st_read_part(x->st, e, start, count, band);
            if (!rc)
                transpose_band(t, first, n, band, x->w + t->offset, true);
        } else {
            transpose_band(t, first, n, band, x->w + t->offset, false);
            rc = sp_st_writer_data(x->out, band, count);
        }
    }
    free(band);
    return rc;
}

static void read_tensor(void *arg, const struct sp_parameter *t)
{
    struct transfer *x = arg;
    const struct sp_st_entry *e;

    if (x->rc)
        return;
    e = find_checked(x->st, x->p, t);
    if (!e)
        x->rc = -EINVAL;
    else if (t->transposed)
        x->rc = move_transposed(x, t, e);
    else
        x->rc = sp_st_read(x->st, e, x->w + t->offset);
}

static void write_tensor(void *arg, const struct sp_parameter *t)
{
    struct transfer *x = arg;

    if (x->rc)
        return;
    if (t->transposed)
        x->rc = move_transposed(x, t, NULL);
    else
        x->rc = sp_st_writer_data(x->out, x->w + t->offset, (size_t)t->rows * (size_t)t->cols);
}

int sp_weights_read_block(const struct sp_st_file *st, const struct sp_params *p,
                          enum sp_block_kind kind, int layer, float *w)
{
    struct transfer x = {.st = st, .p = p, .w = w};
    size_t n = sp_block_elements(&p->model, kind);

    if (n)
        memset(w, 0, n * sizeof *w); /* what lies between tensors */
    sp_block_each(p, kind, layer, read_tensor, &x);
    return x.rc;
}

int sp_weights_shards(const struct sp_params *p, uint64_t shard_bytes)
{
    uint64_t filled = 0;
    int n = 1;

    for (int i = 0; i < p->n; i++) {
        const struct sp_parameter *t = &p->tensors[i];

        n += sp_st_shard_begins(&filled, (uint64_t)t->rows * (uint64_t)t->cols * sizeof(float),
                                shard_bytes);
    }
    return n;
}

int sp_weights_declare(struct sp_st_writer *out, const struct sp_params *p)
{
    int rc = 0;

    for (int i = 0; i < p->n && !rc; i++) {
        int64_t shape[2];
        int ndim = file_shape(&p->tensors[i], shape);

        rc = sp_st_writer_declare(out, p->tensors[i].name, ndim, shape);
    }
    return rc;
}

int sp_weights_write_block(struct sp_st_writer *out, const struct sp_params *p,
                           enum sp_block_kind kind, int layer, const float *w)
{
    struct transfer x = {.out = out, .p = p, .w = (float *)w}; /* write_tensor only reads it */

    sp_block_each(p, kind, layer, write_tensor, &x);
    return x.rc;
}
