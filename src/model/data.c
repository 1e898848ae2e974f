#include "model/data.h"
#include "sp_error.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int32_t token_at(const struct sp_data *d, size_t i)
{
    if (d->width == 1)
        return d->bytes[i];
    return d->bytes[2 * i] | d->bytes[2 * i + 1] << 8;
}

static int check_tokens(const struct sp_data *d, const char *path, int vocab)
{
    if (vocab >= 1 << (8 * d->width))
        return 0;
    for (size_t i = 0; i < d->tokens; i++)
        if (token_at(d, i) >= vocab)
            return sp_error(EINVAL, "%s: token %zu is %d, the model's vocabulary is %d", path, i,
                            token_at(d, i), vocab);
    return 0;
}

int sp_data_open(const char *path, int width, int vocab, struct sp_data *data)
{
    struct sp_data d = {.width = width};
    struct stat st;
    void *map;
    /* A pipe that nobody writes to would block the opening. */
    int err, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st)) {
        err = sp_error(errno, "cannot read data %s: %s", path, strerror(errno));
        goto err_close;
    }
    if (!S_ISREG(st.st_mode)) {
        err = sp_error(EINVAL, "data %s is not a regular file", path);
        goto err_close;
    }
    if (st.st_size == 0) {
        err = sp_error(EINVAL, "data %s is empty", path);
        goto err_close;
    }
    if (st.st_size % width) {
        err = sp_error(EINVAL, "data %s has %lld bytes: not a whole number of %d-byte tokens", path,
                       (long long)st.st_size, width);
        goto err_close;
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        err = sp_error(errno, "cannot map data %s: %s", path, strerror(errno));
        goto err_close;
    }
    close(fd);
    d.bytes = map;
    d.size = (size_t)st.st_size;
    d.tokens = d.size / (size_t)width;
    err = check_tokens(&d, path, vocab);
    if (err) {
        sp_data_close(&d);
        return err;
    }
    *data = d;
    return 0;

err_close:
    if (fd >= 0)
        close(fd);
    return err;
}

void sp_data_close(struct sp_data *data)
{
    if (data->bytes)
        munmap((void *)data->bytes, data->size);
    data->bytes = NULL;
}

/* SplitMix64: a bijective mix, so that neighbouring samples land far apart. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void sp_data_sample(const struct sp_data *data, uint64_t n, int seq, int32_t *inputs,
                    int32_t *targets)
{
    uint64_t total = data->tokens;
    uint64_t at = data->shuffled ? mix(mix(data->seed) ^ n) % total
                                 : (n % total) * ((uint64_t)seq % total) % total;
    int32_t token = token_at(data, at);

    for (int t = 0; t < seq; t++) {
        if (inputs)
            inputs[t] = token;
        at = at + 1 == total ? 0 : at + 1;
        token = token_at(data, at);
        if (targets)
            targets[t] = token;
    }
}
