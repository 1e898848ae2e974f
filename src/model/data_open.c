/* Opens files of tokens: what can be wrong with them, before they are trained on; and what they hold in a number. */
#include "model/data.h"
#include "model/files/file_digest.h"
#include "model/files/dir.h"
#include "sp_grow.h"
#include "sp_error.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names and patterns ------------------------------------------------------------------- */

struct names {
    char **path;
    int n;
};

static int add_name(struct names *to, const char *path)
{
    return sp_append_text(&to->path, &to->n, path)
               ? 0
               : sp_error(ENOMEM, "no memory for the names of %d files", to->n + 1);
}

/* In the order of the alphabet. */
static int add_pattern(struct names *to, const char *pattern)
{
    glob_t found = {0};
    int rc = glob(pattern, GLOB_ERR, NULL, &found), err = 0;

    if (rc == GLOB_NOMATCH)
        err = sp_error(ENOENT, "data %s: no file has such a name", pattern);
    else if (rc)
        err = sp_error(rc == GLOB_NOSPACE ? ENOMEM : EIO, "data %s: its directory cannot be read",
                       pattern);
    for (size_t i = 0; !err && i < found.gl_pathc; i++)
        err = add_name(to, found.gl_pathv[i]);
    globfree(&found);
    return err;
}

/* A file that is there under this very name is no pattern. */
static int add_part(struct names *to, const char *part)
{
    if (!*part)
        return sp_error(EINVAL, "data: an empty name between two commas");
    return access(part, F_OK) && strpbrk(part, "*?[") ? add_pattern(to, part) : add_name(to, part);
}

int sp_data_names(const char *names, char ***paths, int *n)
{
    struct names all = {0};
    char *parts = strdup(names), *rest = parts, *part;
    int err = parts ? 0 : sp_error(ENOMEM, "no memory for the name of data %s", names);

    if (!err && !access(names, F_OK))
        err = add_name(&all, names);
    else
        while (!err && (part = strsep(&rest, ",")))
            err = add_part(&all, part);
    free(parts);
    if (err) {
        sp_data_free_names(all.path, all.n);
        return err;
    }
    *paths = all.path;
    *n = all.n;
    return 0;
}

void sp_data_free_names(char **paths, int n)
{
    sp_dir_free_names(paths, n);
}

/* ---- a file ------------------------------------------------------------------------------- */

static int count_tokens(struct sp_data_file *f)
{
    size_t bytes = f->size - f->begin;

    if (!bytes)
        return sp_error(EINVAL, "data %s is empty", f->path);
    if (bytes % (size_t)f->width)
        return sp_error(EINVAL, "data %s has %zu bytes: not a whole number of %d-byte tokens",
                        f->path, bytes, f->width);
    f->tokens = bytes / (size_t)f->width;
    return 0;
}

/* The loops of a width each, so that the compiler makes vectors of them. */
static uint32_t largest_token(const unsigned char *bytes, int width, size_t n)
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
    if (width == 8) {
        for (size_t i = 0; i < n; i++) {
            uint32_t token = sp_data_token(bytes, 8, i);

            most = token > most ? token : most;
        }
        return most;
    }
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        uint32_t token = sp_data_token(bytes, 4, i);

        most = token > most ? token : most;
    }
    return most;
}

/* Names the first token that is too large. */
static int refuse_large(const struct sp_data_file *f, const unsigned char *block, size_t at,
                        uint32_t vocab)
{
    size_t i = 0;

    while (sp_data_token(block, f->width, i) < vocab)
        i++;
    return sp_error(EINVAL, "%s: token %zu is %u, the model's vocabulary is %u", f->path, at + i,
                    sp_data_token(block, f->width, i), vocab);
}

static int check_tokens(const struct sp_data_file *f, uint32_t vocab)
{
    enum { BLOCK = 1 << 18 }; /* bytes: stays in the cache between the read and the look at it */
    unsigned char *block;
    size_t n;
    int err = 0;

    if (f->width < 4 && vocab >= 1u << (8 * f->width))
        return 0;
    block = malloc(BLOCK);
    if (!block)
        return sp_error(ENOMEM, "no memory to check data %s with", f->path);
    for (size_t at = 0; !err && at < f->tokens; at += n) {
        n = BLOCK / (size_t)f->width;
        n = n < f->tokens - at ? n : f->tokens - at;
        err = sp_data_read(f, f->begin + at * (size_t)f->width, n * (size_t)f->width, block);
        if (!err && largest_token(block, f->width, n) >= vocab)
            err = refuse_large(f, block, at, vocab);
    }
    free(block);
    return err;
}

int sp_data_open_file(const char *path, struct sp_data_file *f)
{
    struct stat st;
    int fd = sp_dir_file(NULL, path), err;

    if (fd < 0 || fstat(fd, &st)) {
        err = fd < 0 ? -fd : errno;
        err = sp_error(err, "cannot read data %s: %s", path, strerror(err));
    } else if (!S_ISREG(st.st_mode)) {
        err = sp_error(EINVAL, "data %s is not a regular file", path);
    } else {
        *f = (struct sp_data_file){.fd = fd, .size = (size_t)st.st_size, .path = strdup(path)};
        if (f->path)
            return 0;
        err = sp_error(ENOMEM, "no memory for the name of data %s", path);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

/* Two bytes cannot number all tokens of a larger vocabulary, and nothing may tell that they are two. */
static int check_width(const struct sp_data_file *f, int width, uint32_t vocab)
{
    if (f->width != 2 || vocab <= 65536)
        return 0;
    if (!width && !f->begin)
        return sp_error(EINVAL,
                        "data %s: tokens of two bytes reach 65535, and the model's vocabulary is "
                        "%u: say --token-bytes 4, or 2 if they are",
                        f->path, vocab);
    if (!f->first)
        sp_warn("data %s: tokens of two bytes reach 65535, and the model's vocabulary is %u",
                f->path, vocab);
    return 0;
}

static int add_file(const char *path, int width, struct sp_data *d)
{
    struct sp_data_file *f = &d->file[d->files];
    int err = sp_data_open_file(path, f);

    if (err)
        return err;
    d->files++;
    err = sp_data_read_header(f, width);
    err = err ? err : count_tokens(f);
    f->first = d->tokens;
    err = err ? err : check_width(f, width, d->vocab);
    err = err ? err : check_tokens(f, d->vocab);
    d->tokens += f->tokens;
    return err;
}

int sp_data_open(const char *names, int width, int vocab, struct sp_data *data)
{
    struct sp_data d = {.vocab = (uint32_t)vocab};
    char **paths;
    int n, err = sp_data_names(names, &paths, &n);

    if (err)
        return err;
    d.file = calloc((size_t)n, sizeof *d.file);
    if (!d.file)
        err = sp_error(ENOMEM, "no memory for %d files of data", n);
    for (int i = 0; i < n && !err; i++)
        err = add_file(paths[i], width, &d);
    sp_data_free_names(paths, n);
    if (err)
        sp_data_close(&d);
    else
        *data = d;
    return err;
}

void sp_data_close(struct sp_data *data)
{
    for (int i = 0; i < data->files; i++) {
        close(data->file[i].fd);
        free(data->file[i].path);
    }
    free(data->file);
    data->file = NULL;
    data->files = 0;
}

int sp_data_digest(const struct sp_data *data, uint64_t *bytes, uint64_t *digest)
{
    uint64_t sum = 0, all = 0;

    for (int i = 0; i < data->files; i++) {
        uint64_t size, word;
        int err = sp_file_digest(data->file[i].fd, data->file[i].path, &size, &word);

        if (err)
            return err;
        sum += size;
        all = i ? (all << 7 | all >> 57) ^ word : word;
    }
    *bytes = sum;
    *digest = all;
    return 0;
}
