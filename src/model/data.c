/* Samples out of an open file, and what it holds in a number. data_open.c opens it. */
#include "model/data.h"
#include "sp_error.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* All of it is inlined: there is no library to link with. */

/* Nothing is at byte `at`. */
static int ends_early(const struct sp_data *d, size_t at)
{
    struct stat st;

    if (!fstat(d->fd, &st) && (size_t)st.st_size < at)
        at = (size_t)st.st_size;
    return sp_error(EIO, "data %s: ends at byte %zu, it had %zu when it was opened", d->path, at,
                    d->size);
}

int sp_data_read(const struct sp_data *data, size_t at, size_t n, void *to)
{
    size_t got = 0;

    if (data->bytes) {
        memcpy(to, data->bytes + at, n);
        return 0;
    }
    while (got < n) {
        ssize_t k = pread(data->fd, (char *)to + got, n - got, (off_t)(at + got));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return sp_error(errno, "data %s: cannot be read at byte %zu: %s", data->path, at + got,
                            strerror(errno));
        if (k == 0)
            return ends_early(data, at + got);
        got += (size_t)k;
    }
    return 0;
}

/* SplitMix64: a bijective mix, so that neighbouring samples land far apart. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

int sp_data_sample(const struct sp_data *data, uint64_t n, int seq, int32_t *inputs,
                   int32_t *targets)
{
    enum { PIECE = 4096 }; /* tokens */
    unsigned char bytes[4 * PIECE];
    uint64_t total = data->tokens;
    uint64_t at = data->shuffled ? mix(mix(data->seed) ^ n) % total
                                 : (n % total) * ((uint64_t)seq % total) % total;
    size_t want = (size_t)seq + 1, width = (size_t)data->width;

    for (size_t done = 0, k; done < want; done += k) {
        int err;

        k = least(least(PIECE, want - done), total - at);
        err = sp_data_read(data, data->begin + at * width, k * width, bytes);
        if (err)
            return err;
        for (size_t i = 0; i < k; i++) {
            uint32_t token = sp_data_token(bytes, data->width, i);

            if (data->vocab && token >= data->vocab)
                return sp_error(EINVAL,
                                "data %s: token %llu is %u now, the model's vocabulary is %u: it "
                                "was changed since it was opened",
                                data->path, (unsigned long long)at + i, token, data->vocab);
            if (inputs && done + i + 1 < want)
                inputs[done + i] = (int32_t)token;
            if (targets && done + i > 0)
                targets[done + i - 1] = (int32_t)token;
        }
        at = at + k == total ? 0 : at + k;
    }
    return 0;
}
