/* Reading safetensors: the file, and its data as floats. The header is in safetensors_header.c. */
#include "model/safetensors.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

/* The limit of the format's own reader. */
#define HEADER_MAX_BYTES 100000000

#define PIECE_BYTES (256 << 10)

/* Reads exactly n bytes; pread, so that threads may share the file. */
static int read_at(const struct sp_st_file *st, uint64_t offset, void *buf, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t k = pread(fileno(st->f), (char *)buf + done, n - done, (off_t)(offset + done));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return sp_error(errno, "%s: cannot be read: %s", st->path, strerror(errno));
        if (k == 0)
            return sp_error(EIO, "%s: ends at byte %llu, it was longer when it was opened",
                            st->path, (unsigned long long)(offset + done));
        done += (size_t)k;
    }
    return 0;
}

/* Opens a regular file; a pipe or a device must neither block nor be read. */
static int open_file(const char *path, FILE **f, uint64_t *size)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), rc;
    struct stat info;

    if (fd < 0)
        return sp_error(errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info))
        rc = sp_error(errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        rc = sp_error(EINVAL, "%s: not a regular file", path);
    else if (!(*f = fdopen(fd, "rb")))
        rc = sp_error(errno, "%s: %s", path, strerror(errno));
    else
        rc = 0;
    if (rc)
        close(fd);
    else
        *size = (uint64_t)info.st_size;
    return rc;
}

int sp_st_open(const char *path, struct sp_st_file *st)
{
    struct sp_st_file opened = {0};
    uint64_t size = 0, header;
    char *json = NULL;
    int rc = open_file(path, &opened.f, &size);

    if (rc)
        return rc;
    opened.path = strdup(path);
    if (!opened.path) {
        rc = sp_error(ENOMEM, "%s: no memory for its path", path);
        goto out;
    }
    if (size < sizeof header) {
        rc = sp_error(EINVAL, "%s: %llu bytes are too short for a safetensors file", path,
                      (unsigned long long)size);
        goto out;
    }
    rc = read_at(&opened, 0, &header, sizeof header);
    if (rc)
        goto out;
    if (header > HEADER_MAX_BYTES) {
        rc = sp_error(EINVAL, "%s: a header of %llu bytes, at most %d are allowed", path,
                      (unsigned long long)header, HEADER_MAX_BYTES);
        goto out;
    }
    if (header > size - sizeof header) {
        rc = sp_error(EINVAL, "%s: a header of %llu bytes in a file of %llu", path,
                      (unsigned long long)header, (unsigned long long)size);
        goto out;
    }
    opened.data_start = sizeof header + header;
    json = malloc(header + 1);
    if (!json) {
        rc = sp_error(ENOMEM, "%s: no memory for a header of %llu bytes", path,
                      (unsigned long long)header);
        goto out;
    }
    rc = read_at(&opened, sizeof header, json, header);
    if (!rc)
        rc = sp_st_parse_header(json, header, size - opened.data_start, path, &opened.entries,
                                &opened.n);
out:
    free(json);
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
    free(st->path);
    if (st->f)
        fclose(st->f);
    *st = (struct sp_st_file){0};
}

const struct sp_st_entry *sp_st_find(const struct sp_st_file *st, const char *name)
{
    for (int i = 0; i < st->n; i++) {
        if (!strcmp(st->entries[i].name, name))
            return &st->entries[i];
    }
    return NULL;
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

static void convert(const char *dtype, const uint16_t *half, size_t n, float *out)
{
    if (!strcmp(dtype, "F16")) {
        for (size_t i = 0; i < n; i++)
            out[i] = float_of_f16(half[i]);
    } else { /* BF16: the upper half of a float */
        for (size_t i = 0; i < n; i++)
            out[i] = float_of_bits((uint32_t)half[i] << 16);
    }
}

int sp_st_read_part(const struct sp_st_file *st, const struct sp_st_entry *e, uint64_t first,
                    size_t count, float *out)
{
    uint64_t start = st->data_start + e->begin;
    bool single = !strcmp(e->dtype, "F32");
    uint64_t width = single ? 4 : 2, elements = (e->end - e->begin) / width;
    uint16_t *half;
    int rc = 0;

    if (!single && strcmp(e->dtype, "F16") && strcmp(e->dtype, "BF16"))
        return sp_error(EINVAL, "%s: tensor %.80s is %s, only F32, F16 and BF16 can be read",
                        st->path, e->name, e->dtype);
    if (first > elements || count > elements - first)
        return sp_error(EINVAL, "%s: elements %llu .. %llu of tensor %.80s, which has %llu",
                        st->path, (unsigned long long)first, (unsigned long long)(first + count),
                        e->name, (unsigned long long)elements);
    if (single)
        return read_at(st, start + 4 * first, out, 4 * count);
    half = malloc(PIECE_BYTES);
    if (!half)
        return sp_error(ENOMEM, "%s: no memory for a buffer of %d bytes", st->path, PIECE_BYTES);
    while (count && !rc) {
        size_t n = count < PIECE_BYTES / 2 ? count : PIECE_BYTES / 2;

        rc = read_at(st, start + 2 * first, half, 2 * n);
        if (!rc)
            convert(e->dtype, half, n, out);
        first += n;
        out += n;
        count -= n;
    }
    free(half);
    return rc;
}

int sp_st_read(const struct sp_st_file *st, const struct sp_st_entry *e, float *out)
{
    uint64_t count = 1;

    for (int i = 0; i < e->ndim; i++) /* 0 and no overflow: checked with the header */
        count *= (uint64_t)e->shape[i];
    return sp_st_read_part(st, e, 0, count, out);
}
