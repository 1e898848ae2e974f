/* Reading safetensors: the file, and its data as floats. The header is in safetensors_json.c. */
#include "model/files/input.h"
#include "model/files/safetensors.h"
#include "sp_activity.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

/* The limit of the format's own reader. */
#define HEADER_MAX_BYTES 100000000

#define PIECE_BYTES (256 << 10)

/* Reads exactly n bytes; pread, so that threads may share the file. */
static int read_at(const struct sp_st_shard *from, uint64_t offset, void *buf, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = pread(fileno(from->f), (char *)buf + done, n - done, (off_t)(offset + done));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return sp_error(errno, "%s: cannot be read: %s", from->path, strerror(errno));
        if (k == 0)
            return sp_error(EIO, "%s: ends at byte %llu, it was longer when it was opened",
                            from->path, (unsigned long long)(offset + done));
        done += (size_t)k;
        sp_activity_touch();
    }
    return 0;
}

/* The header of a file of `size` bytes. */
static int read_header(struct sp_st_shard *from, uint64_t size, struct sp_st_entry **entries,
                       int *n)
{
    uint64_t header;
    char *json;
    int rc;

    if (size < sizeof header)
        return sp_error(EINVAL, "%s: %llu bytes are too short for a safetensors file", from->path,
                        (unsigned long long)size);
    SP_TRY(read_at(from, 0, &header, sizeof header));
    if (header > HEADER_MAX_BYTES)
        return sp_error(EINVAL, "%s: a header of %llu bytes, at most %d are allowed", from->path,
                        (unsigned long long)header, HEADER_MAX_BYTES);
    if (header > size - sizeof header)
        return sp_error(EINVAL, "%s: a header of %llu bytes in a file of %llu", from->path,
                        (unsigned long long)header, (unsigned long long)size);
    from->data_start = sizeof header + header;
    json = malloc(header + 1);
    if (!json)
        return sp_error(ENOMEM, "%s: no memory for a header of %llu bytes", from->path,
                        (unsigned long long)header);
    rc = read_at(from, sizeof header, json, header);
    if (!rc)
        rc = sp_st_parse_header(json, header, size - from->data_start, from->path, entries, n);
    free(json);
    return rc;
}

int sp_st_open_in(const struct sp_dir *dir, const char *name, struct sp_st_file *st)
{
    struct sp_st_file opened = {.path = sp_dir_join(dir, name), .n_shards = 1};
    uint64_t size = 0;
    int rc;

    opened.shards = calloc(1, sizeof *opened.shards);
    if (!opened.path || !opened.shards || !(opened.shards[0].path = strdup(opened.path))) {
        rc = sp_error(ENOMEM, "%s: no memory for its path", name);
        goto out;
    }
    rc = sp_input_open(dir, name, &opened.shards[0].f, &size);
    if (!rc)
        rc = read_header(&opened.shards[0], size, &opened.entries, &opened.n);
out:
    if (rc)
        sp_st_close(&opened);
    else
        *st = opened;
    return rc;
}

void sp_st_close(struct sp_st_file *st)
{
    for (int i = 0; i < st->n; i++)
        free(st->entries[i].name);
    free(st->entries);
    for (int i = 0; i < st->n_shards && st->shards; i++) {
        free(st->shards[i].path);
        if (st->shards[i].f)
            fclose(st->shards[i].f);
    }
    free(st->shards);
    free(st->path);
    *st = (struct sp_st_file){0};
}

const struct sp_st_entry *sp_st_find(const struct sp_st_file *st, const char *name)
{
    for (int i = 0; i < st->n; i++)
        if (!strcmp(st->entries[i].name, name))
            return &st->entries[i];
    return NULL;
}

const char *sp_st_path(const struct sp_st_file *st, const struct sp_st_entry *e)
{
    return st->shards[e->shard].path;
}

/* ---- conversions ------------------------------------------------------------------------ */

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 1 sign, 5 exponent, 10 mantissa bits; a float holds every one of them exactly. */
static float float_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;

    if (exponent == 31) /* infinity, NaN */
        return float_of_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) /* zero, subnormal: mantissa * 2^-24 */
        return (sign ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

struct real {
    const char *dtype;
    size_t bytes;
    void (*convert)(const void *from, size_t n, float *out); /* NULL: floats as they are */
};

static void convert_f16(const void *from, size_t n, float *out)
{
    const uint16_t *half = from;

    for (size_t i = 0; i < n; i++)
        out[i] = float_of_f16(half[i]);
}

/* The upper half of a float. */
static void convert_bf16(const void *from, size_t n, float *out)
{
    const uint16_t *half = from;

    for (size_t i = 0; i < n; i++)
        out[i] = float_of_bits((uint32_t)half[i] << 16);
}

/* To the nearest; what is too large becomes infinite, as IEC 60559 has it. */
static void convert_f64(const void *from, size_t n, float *out)
{
    const double *wide = from;

    for (size_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
}

static const struct real *find_real(const char *dtype)
{
    static const struct real reals[] = {{"F32", 4, NULL},
                                        {"F16", 2, convert_f16},
                                        {"BF16", 2, convert_bf16},
                                        {"F64", 8, convert_f64}};

    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!strcmp(dtype, reals[i].dtype))
            return &reals[i];
    return NULL;
}

bool sp_st_is_real(const char *dtype)
{
    return find_real(dtype) != NULL;
}

int sp_st_read_part(const struct sp_st_file *st, const struct sp_st_entry *e, uint64_t first,
                    size_t count, float *out)
{
    const struct sp_st_shard *from = &st->shards[e->shard];
    const struct real *real = find_real(e->dtype);
    uint64_t start = from->data_start + e->begin, elements;
    void *piece;
    int rc = 0;

    if (!real)
        return sp_error(EINVAL, "%s: tensor %.80s is %s, only " SP_ST_REALS " can be read",
                        from->path, e->name, e->dtype);
    elements = (e->end - e->begin) / real->bytes;
    if (first > elements || count > elements - first)
        return sp_error(EINVAL, "%s: elements %llu .. %llu of tensor %.80s, which has %llu",
                        from->path, (unsigned long long)first, (unsigned long long)(first + count),
                        e->name, (unsigned long long)elements);
    if (!real->convert)
        return read_at(from, start + sizeof *out * first, out, sizeof *out * count);
    piece = malloc(PIECE_BYTES);
    if (!piece)
        return sp_error(ENOMEM, "%s: no memory for a buffer of %d bytes", from->path, PIECE_BYTES);
    while (count && !rc) {
        size_t most = PIECE_BYTES / real->bytes, n = count < most ? count : most;

        rc = read_at(from, start + real->bytes * first, piece, real->bytes * n);
        if (!rc)
            real->convert(piece, n, out);
        first += n;
        out += n;
        count -= n;
    }
    free(piece);
    return rc;
}

/* No product overflows: they are checked with the header. */
static uint64_t elements_of(const struct sp_st_entry *e)
{
    uint64_t count = 1;

    for (int i = 0; i < e->ndim; i++)
        count *= (uint64_t)e->shape[i];
    return count;
}

int sp_st_read(const struct sp_st_file *st, const struct sp_st_entry *e, float *out)
{
    return sp_st_read_part(st, e, 0, elements_of(e), out);
}

int sp_st_same(const struct sp_st_file *st, const struct sp_st_entry *a,
               const struct sp_st_entry *b, bool *same)
{
    const size_t piece = PIECE_BYTES / sizeof(float);
    uint64_t count = elements_of(a);
    float *x, *y;
    int rc = 0;

    *same = a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
    if (!*same)
        return 0;
    x = malloc(piece * sizeof *x);
    y = malloc(piece * sizeof *y);
    if (!x || !y)
        rc = sp_error(ENOMEM, "%s: no memory for two buffers of %d bytes", st->path, PIECE_BYTES);
    for (uint64_t at = 0; at < count && !rc && *same; at += piece) {
        size_t n = count - at < piece ? (size_t)(count - at) : piece;

        rc = sp_st_read_part(st, a, at, n, x);
        if (!rc)
            rc = sp_st_read_part(st, b, at, n, y);
        *same = !rc && !memcmp(x, y, n * sizeof *x);
    }
    free(x);
    free(y);
    return rc;
}
