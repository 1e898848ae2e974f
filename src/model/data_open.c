/* What can be wrong with a file of tokens, before it is trained on. */
#include "model/data.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* llm.c's files (write_datafile of dev/data/data_common.py) begin with 256 int32: magic, version,
 * tokens that follow, zeros. nanoGPT's have no header. */
static const struct {
    uint32_t magic, version;
    int width;
    const char *of;
} formats[] = {
    {20240520, 1, 2, "GPT-2"},
    {20240801, 7, 4, "Llama 3"},
};
enum { FORMATS = sizeof formats / sizeof *formats, HEADER_BYTES = 1024, HEADER_WORDS = 3 };

/* The number of tokens that the header names must be there. */
static int check_header(const struct sp_data *d, int format, const uint32_t word[HEADER_WORDS])
{
    int width = formats[format].width;

    if (word[1] != formats[format].version)
        return sp_error(EINVAL,
                        "data %s: its header is that of llm.c for %s, of version %u; %u is known",
                        d->path, formats[format].of, word[1], formats[format].version);
    if (d->width && d->width != width)
        return sp_error(EINVAL,
                        "data %s: by its header (llm.c for %s) a token has %d bytes, not %d",
                        d->path, formats[format].of, width, d->width);
    if (d->size < HEADER_BYTES || (d->size - HEADER_BYTES) / (size_t)width != word[2] ||
        (d->size - HEADER_BYTES) % (size_t)width)
        return sp_error(EINVAL,
                        "data %s: by its header (llm.c for %s) it has %u tokens of %d bytes, which "
                        "makes %llu bytes in all; it has %zu",
                        d->path, formats[format].of, word[2], width,
                        HEADER_BYTES + (unsigned long long)word[2] * (unsigned)width, d->size);
    return 0;
}

/* Where the tokens begin, and their width. */
static int read_header(struct sp_data *d)
{
    unsigned char bytes[4 * HEADER_WORDS] = {0}; /* no magic */
    uint32_t word[HEADER_WORDS] = {0};
    int err = 0, format = 0;

    if (d->width == 1)
        return 0;
    if (d->size >= sizeof bytes)
        err = sp_data_read(d, 0, sizeof bytes, bytes);
    for (int i = 0; i < HEADER_WORDS; i++)
        word[i] = sp_data_token(bytes, 4, (size_t)i);
    while (format < FORMATS && formats[format].magic != word[0])
        format++;
    if (!err && format < FORMATS) {
        err = check_header(d, format, word);
        d->begin = HEADER_BYTES;
        d->width = formats[format].width;
    } else if (!d->width) {
        d->width = 2;
    }
    return err;
}

static int count_tokens(struct sp_data *d)
{
    size_t bytes = d->size - d->begin;

    if (!bytes)
        return sp_error(EINVAL, "data %s is empty", d->path);
    if (bytes % (size_t)d->width)
        return sp_error(EINVAL, "data %s has %zu bytes: not a whole number of %d-byte tokens",
                        d->path, bytes, d->width);
    d->tokens = bytes / (size_t)d->width;
    return 0;
}

/* The loops of a width each, so that the compiler makes vectors of them. */
static uint32_t largest(const unsigned char *bytes, int width, size_t n)
{
    uint32_t most = 0;
    uint16_t most16 = 0;
    uint8_t most8 = 0;

    if (width == 1) {
#pragma omp simd reduction(max : most8)
        for (size_t i = 0; i < n; i++)
            most8 = bytes[i] > most8 ? bytes[i] : most8;
        return most8;
    }
    if (width == 2) {
#pragma omp simd reduction(max : most16)
        for (size_t i = 0; i < n; i++) {
            uint16_t token = (uint16_t)sp_data_token(bytes, 2, i);

            most16 = token > most16 ? token : most16;
        }
        return most16;
    }
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        uint32_t token = sp_data_token(bytes, 4, i);

        most = token > most ? token : most;
    }
    return most;
}

static int check_tokens(const struct sp_data *d)
{
    enum { BLOCK = 1 << 18 }; /* bytes: stays in the cache between the read and the look at it */
    unsigned char *block;
    size_t n;
    int err = 0;

    if (d->width < 4 && d->vocab >= 1u << (8 * d->width))
        return 0;
    block = malloc(BLOCK);
    if (!block)
        return sp_error(ENOMEM, "no memory to check data %s with", d->path);
    for (size_t at = 0; !err && at < d->tokens; at += n) {
        n = BLOCK / (size_t)d->width;
        n = n < d->tokens - at ? n : d->tokens - at;
        err = sp_data_read(d, d->begin + at * (size_t)d->width, n * (size_t)d->width, block);
        if (err || largest(block, d->width, n) < d->vocab)
            continue;
        for (size_t i = 0; !err; i++) {
            uint32_t token = sp_data_token(block, d->width, i);

            if (token >= d->vocab)
                err = sp_error(EINVAL, "%s: token %zu is %u, the model's vocabulary is %u", d->path,
                               at + i, token, d->vocab);
        }
    }
    free(block);
    return err;
}

static int open_file(const char *path, struct sp_data *d)
{
    struct stat st;
    /* A pipe that nobody writes to would block the opening. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err;

    if (fd < 0 || fstat(fd, &st)) {
        err = sp_error(errno, "cannot read data %s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        err = sp_error(EINVAL, "data %s is not a regular file", path);
    } else {
        d->fd = fd;
        d->size = (size_t)st.st_size;
        d->path = strdup(path);
        if (d->path)
            return 0;
        err = sp_error(ENOMEM, "no memory for the name of data %s", path);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

int sp_data_open(const char *path, int width, int vocab, struct sp_data *data)
{
    struct sp_data d = {.width = width, .vocab = (uint32_t)vocab};
    int err = open_file(path, &d);

    if (err)
        return err;
    err = read_header(&d);
    err = err ? err : count_tokens(&d);
    err = err ? err : check_tokens(&d);
    if (err)
        sp_data_close(&d);
    else
        *data = d;
    return err;
}

void sp_data_close(struct sp_data *data)
{
    if (!data->path)
        return;
    close(data->fd);
    free(data->path);
    data->path = NULL;
}
