/* Headers of files of tokens, those of llm.c and NumPy; nanoGPT's have none. */
#include "model/data.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `tokens` are there, and nothing behind them. */
static int check_size(const struct sp_data_file *f, const char *of, uint64_t tokens)
{
    size_t begin = f->begin;
    int width = f->width;

    if (f->size >= begin && (f->size - begin) / (size_t)width == tokens &&
        (f->size - begin) % (size_t)width == 0)
        return 0;
    return sp_error(EINVAL,
                    "data %s: by its header (%s) it has %llu tokens of %d bytes, which makes %.0f "
                    "bytes in all; it has %zu",
                    f->path, of, (unsigned long long)tokens, width,
                    (double)begin + (double)tokens * width, f->size);
}

/* ---- llm.c ------------------------------------------------------------------------------ */

/* Its files (write_datafile of dev/data/data_common.py) begin with 256 int32: magic, version, tokens that
 * follow, zeros. */
static const struct {
    uint32_t magic, version;
    int width;
    const char *of;
} formats[] = {
    {20240520, 1, 2, "llm.c for GPT-2"},
    {20240801, 7, 4, "llm.c for Llama 3"},
};
enum { FORMATS = sizeof formats / sizeof *formats, HEADER_BYTES = 1024, HEADER_WORDS = 3 };

/* 1: it has no such header. A width that was asked for and that the header contradicts is refused. */
static int read_llmc(struct sp_data_file *f, int asked)
{
    unsigned char bytes[4 * HEADER_WORDS];
    uint32_t word[HEADER_WORDS];
    const char *of;
    int width, i = 0;

    if (f->size < sizeof bytes)
        return 1;
    SP_TRY(sp_data_read(f, 0, sizeof bytes, bytes));
    for (int k = 0; k < HEADER_WORDS; k++)
        word[k] = sp_data_token(bytes, 4, (size_t)k);
    while (i < FORMATS && formats[i].magic != word[0])
        i++;
    if (i == FORMATS)
        return 1;
    of = formats[i].of;
    if (word[1] != formats[i].version)
        return sp_error(EINVAL, "data %s: its header is that of %s, of version %u; %u is known",
                        f->path, of, word[1], formats[i].version);
    width = formats[i].width;
    if (asked && asked != width)
        return sp_error(EINVAL, "data %s: by its header (%s) a token has %d bytes, not %d", f->path,
                        of, width, asked);
    f->begin = HEADER_BYTES;
    f->width = width;
    return check_size(f, of, word[2]);
}

/* ---- NumPy ------------------------------------------------------------------------------ */

/*
 * An array as numpy.save writes it: \x93NUMPY, two bytes of version, the length of a text in two bytes, or four
 * from version 2 on, and that text: {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }.
 */
static const char NPY_MAGIC[] = "\x93NUMPY";
enum { NPY_START = 12, NPY_MOST = 65536 };

/* Behind 'key': in the text; NULL: it is not there. */
static const char *npy_value(const char *text, const char *key)
{
    char quoted[32];
    const char *at;

    snprintf(quoted, sizeof quoted, "'%s':", key);
    at = strstr(text, quoted);
    return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

/* Bytes of an element; 0: no integer, or one that begins with its high byte. */
static int npy_width(const char *descr)
{
    static const char *const known[] = {"'|u1'", "'<u2'", "'<i2'", "'<u4'",
                                        "'<i4'", "'<u8'", "'<i8'"};

    for (size_t i = 0; descr && i < sizeof known / sizeof *known; i++)
        if (!strncmp(descr, known[i], 5))
            return known[i][3] - '0';
    return 0;
}

/* Elements of "(2, 1000)" and how many dimensions; -1: unreadable, or more than a file can have. */
static int64_t npy_elements(const char *shape, int *dimensions)
{
    double n = 1;

    *dimensions = 0;
    if (!shape || *shape++ != '(')
        return -1;
    while (*shape && *shape != ')') {
        char *end;
        long long d = strtoll(shape, &end, 10);

        if (end == shape || d < 0 || (n *= (double)d) > 1e15)
            return -1;
        ++*dimensions;
        shape = end + strspn(end, ", ");
    }
    return *shape == ')' && *dimensions ? (int64_t)n : -1;
}

/* Its header says how wide its tokens are, whatever was asked for: that is for the files beside it that have none. */
static int take_npy(struct sp_data_file *f, const char *text)
{
    const char *descr = npy_value(text, "descr"), *order = npy_value(text, "fortran_order");
    int width = npy_width(descr), dimensions;
    int64_t tokens = npy_elements(npy_value(text, "shape"), &dimensions);

    if (!width)
        return sp_error(
            EINVAL,
            "data %s: a NumPy array of %.*s; tokens are little-endian integers: uint16, "
            "uint32, int32 or int64",
            f->path, descr ? (int)strcspn(descr, ",}\n") : 11, descr ? descr : "no 'descr'");
    if (tokens < 0 || !order || (dimensions > 1 && strncmp(order, "False", 5)))
        return sp_error(EINVAL, "data %s: a NumPy array of a shape or an order that is not read",
                        f->path);
    f->width = width;
    return check_size(f, "NumPy", (uint64_t)tokens);
}

/* 1: it has no such header. */
static int read_npy(struct sp_data_file *f)
{
    unsigned char start[NPY_START];
    size_t length, at;
    char *text;
    int err;

    if (f->size < sizeof start)
        return 1;
    SP_TRY(sp_data_read(f, 0, sizeof start, start));
    if (memcmp(start, NPY_MAGIC, sizeof NPY_MAGIC - 1))
        return 1;
    at = start[6] < 2 ? 10 : 12;
    length = start[6] < 2 ? sp_data_token(start + 8, 2, 0) : sp_data_token(start + 8, 4, 0);
    if (start[6] < 1 || start[6] > 3 || length > NPY_MOST || at + length > f->size)
        return sp_error(EINVAL, "data %s: a NumPy array, version %d, with a header of %zu bytes",
                        f->path, start[6], length);
    text = malloc(length + 1);
    if (!text)
        return sp_error(ENOMEM, "no memory for the header of data %s", f->path);
    err = sp_data_read(f, at, length, text);
    text[length] = '\0';
    f->begin = at + length;
    err = err ? err : take_npy(f, text);
    free(text);
    return err;
}

/* Archives that NumPy (.npz), PyTorch and others pack tokens in are refused. */
static int refuse_packed(const struct sp_data_file *f)
{
    static const struct {
        const char *magic, *what;
    } known[] = {{"PK\3\4", "a zip archive (.npz, .pt)"}, {"PAR1", "a Parquet table"}};
    char start[4];
    int err = f->size < sizeof start ? 0 : sp_data_read(f, 0, sizeof start, start);

    for (size_t i = 0; !err && f->size >= sizeof start && i < sizeof known / sizeof *known; i++)
        if (!memcmp(start, known[i].magic, sizeof start))
            err = sp_error(EINVAL, "data %s is %s: write its tokens as .npy or .bin", f->path,
                           known[i].what);
    return err;
}

int sp_data_read_header(struct sp_data_file *f, int width)
{
    int err = read_npy(f);

    if (width == 1 && err <= 0)
        return err ? err
                   : sp_error(EINVAL,
                              "data %s: a NumPy array of tokens, and no text: give it as "
                              "--tokens",
                              f->path);
    if (width == 1) {
        f->width = 1;
        return 0;
    }
    err = err > 0 ? read_llmc(f, width) : err;
    err = err > 0 && refuse_packed(f) ? -EINVAL : err;
    if (err > 0)
        f->width = width ? width : 2;
    return err > 0 ? 0 : err;
}
