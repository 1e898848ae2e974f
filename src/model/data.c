/* Samples out of open files. data_open.c opens them. */
#include "model/data.h"
#include "kernels/kernels.h"
#include "model/try.h"
#include "sp_error.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- bytes ------------------------------------------------------------------------------ */

/* Nothing is at byte `at`. */
static int ends_early(const struct sp_data_file *f, size_t at)
{
    struct stat st;

    if (!fstat(f->fd, &st) && (size_t)st.st_size < at)
        at = (size_t)st.st_size;
    return sp_error(EIO, "data %s: ends at byte %zu, it had %zu when it was opened", f->path, at,
                    f->size);
}

int sp_data_read(const struct sp_data_file *f, size_t at, size_t n, void *to)
{
    size_t got = 0;

    if (f->bytes) {
        memcpy(to, f->bytes + at, n);
        return 0;
    }
    while (got < n) {
        ssize_t k = pread(f->fd, (char *)to + got, n - got, (off_t)(at + got));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return sp_error(errno, "data %s: cannot be read at byte %zu: %s", f->path, at + got,
                            strerror(errno));
        if (k == 0)
            return ends_early(f, at + got);
        got += (size_t)k;
    }
    return 0;
}

/* ---- the order -------------------------------------------------------------------------- */

/* SplitMix64: a bijective mix, so that neighbouring numbers land far apart. */
static uint64_t mix_bits(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A permutation of 0 .. 2^(2 half) - 1: Feistel's, whose rounds are bijective whatever they mix in. */
static uint64_t permute_bits(uint64_t x, int half, uint64_t key)
{
    enum { ROUNDS = 6 };
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;

    for (uint64_t r = 0; r < ROUNDS; r++) {
        uint64_t next = left ^ (mix_bits(right ^ mix_bits(key + r)) & mask);

        left = right;
        right = next;
    }
    return left << half | right;
}

/* The same of 0 .. n - 1: steps that lead out of them are taken again, and come back. */
static uint64_t permute_below(uint64_t x, uint64_t n, uint64_t key)
{
    int half = 1;

    while (half < 32 && (uint64_t)1 << 2 * half < n)
        half++;
    do
        x = permute_bits(x, half, key);
    while (x >= n);
    return x;
}

uint64_t sp_data_samples(const struct sp_data *data, int seq)
{
    uint64_t whole = data->tokens / (uint64_t)seq;

    return whole ? whole : 1;
}

uint64_t sp_data_place(const struct sp_data *data, uint64_t n, int seq)
{
    uint64_t number = data->origin + n, samples = sp_data_samples(data, seq);

    return data->shuffled ? permute_below(number % samples, samples,
                                          mix_bits(mix_bits(data->seed) + number / samples))
                          : number;
}

/* ---- samples ---------------------------------------------------------------------------- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The file that has token `at`. */
static const struct sp_data_file *file_of(const struct sp_data *data, uint64_t at)
{
    int low = 0, high = data->files - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (data->file[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return &data->file[low];
}

static int refuse_changed(const struct sp_data *data, const struct sp_data_file *f, uint64_t at,
                          uint32_t token)
{
    return sp_error(EINVAL,
                    "data %s: token %llu is %u now, the model's vocabulary is %u: it was changed "
                    "since it was opened",
                    f->path, (unsigned long long)at, token, data->vocab);
}

/* Tokens from `at` on as places first .. first + n of a sample. */
static int read_tokens(const struct sp_data *data, uint64_t at, size_t first, size_t n, int seq,
                       int32_t *to[2])
{
    enum { PIECE = 4096 }; /* tokens */
    unsigned char bytes[8 * PIECE];

    for (size_t done = 0, k; done < n; done += k) {
        const struct sp_data_file *f = file_of(data, at);
        size_t width = (size_t)f->width, in = at - f->first;

        k = smaller(smaller(PIECE, n - done), f->tokens - in);
        SP_TRY(sp_data_read(f, f->begin + in * width, k * width, bytes));
        for (size_t i = 0, place = first + done; i < k; i++, place++) {
            uint32_t token = sp_data_token(bytes, f->width, i);

            if (data->vocab && token >= data->vocab)
                return refuse_changed(data, f, in + i, token);
            if (to[0] && place < (size_t)seq)
                to[0][place] = (int32_t)token;
            if (to[1] && place > 0)
                to[1][place - 1] = (int32_t)token;
        }
        at += k;
    }
    return 0;
}

static void pad_sample(size_t first, int seq, int32_t *to[2])
{
    for (size_t i = first; i < (size_t)seq; i++) {
        if (to[0])
            to[0][i] = 0;
        if (to[1])
            to[1][i] = SP_NO_TARGET;
    }
    if (to[1] && first > 0)
        to[1][first - 1] = SP_NO_TARGET; /* the last token has none behind it */
}

int sp_data_sample(const struct sp_data *data, uint64_t n, int seq, int32_t *inputs,
                   int32_t *targets)
{
    uint64_t place = sp_data_place(data, n, seq), total = data->tokens, at;
    size_t want = (size_t)seq + 1, k;
    int32_t *to[2] = {inputs, targets};
    int err = 0;

    if (data->once) {
        bool there = place <= total / (uint64_t)seq;

        at = there ? place * (uint64_t)seq : total;
        k = smaller(want, total - at);
        if (k < want)
            pad_sample(k, seq, to);
        return k ? read_tokens(data, at, 0, k, seq, to) : 0;
    }
    at = (place % total) * ((uint64_t)seq % total) % total;
    for (size_t done = 0; !err && done < want; done += k) {
        k = smaller(want - done, total - at);
        err = read_tokens(data, at, done, k, seq, to);
        at = 0;
    }
    return err;
}
