/*
 * A fuzz target's own main, for compilers without libFuzzer: a deterministic loop of mutations
 * over the seeds of the target, ITERATIONS from the command line. With clang,
 * -fsanitize=fuzzer -DSP_LIBFUZZER makes the same target a libFuzzer program.
 */
#ifndef TESTS_MODEL_FUZZ_H
#define TESTS_MODEL_FUZZ_H

#include "quotes.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Counted by the target: a run in which nothing is accepted tests little. */
static long fuzz_accepted;

/* Refusals are many and of no interest here. */
static inline void fuzz_silence(void)
{
    static int done;
    int fd;

    if (done)
        return;
    done = 1;
#ifndef SP_LIBFUZZER
    fd = open("/dev/null", O_WRONLY);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
        abort();
    close(fd);
#else
    (void)fd;
#endif
}

#ifndef SP_LIBFUZZER

#define FUZZ_MAX 4096

struct fuzz_seed {
    const void *data;
    size_t size;
};

/* A seed of JSON in single quotes. */
static inline struct fuzz_seed fuzz_json(const char *quoted)
{
    return (struct fuzz_seed){json_text(quoted), strlen(quoted)};
}

/* Words that a mutation may insert, with blanks between. */
static const char fuzz_words[] =
    "null true false -1 0 1e999 \"\" [] {} 9223372036854775807 9223372036854775808 4294967296 "
    "2147483647 \\u0000 \\n , : \" [ ] { } 1.5 \xff";
enum { FUZZ_WORDS = 24 };

static const char *fuzz_word(uint64_t i, size_t *n)
{
    const char *word = fuzz_words;

    for (; i; i--)
        word = strchr(word, ' ') + 1;
    *n = strcspn(word, " ");
    return word;
}

static uint64_t fuzz_random(uint64_t *state) /* SplitMix64 */
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Replaces `cut` bytes at `at` by `n` bytes of `with`. */
static size_t fuzz_splice(uint8_t *buf, size_t size, size_t at, size_t cut, const void *with,
                          size_t n)
{
    if (size - cut + n > FUZZ_MAX)
        return size;
    memmove(buf + at + n, buf + at + cut, size - at - cut);
    memcpy(buf + at, with, n);
    return size - cut + n;
}

static size_t fuzz_mutate(uint8_t *buf, size_t size, const struct fuzz_seed *other, uint64_t *rng)
{
    uint8_t piece[64];
    size_t at = size ? fuzz_random(rng) % size : 0;
    size_t cut = size - at ? fuzz_random(rng) % (size - at < 12 ? size - at + 1 : 12) : 0;
    size_t from, n, length;
    const char *word = fuzz_word(fuzz_random(rng) % FUZZ_WORDS, &length);

    switch (fuzz_random(rng) % 6) {
    case 0: /* a bit */
        if (size)
            buf[at] ^= (uint8_t)(1u << fuzz_random(rng) % 8);
        return size;
    case 1: /* a byte */
        if (size)
            buf[at] = (uint8_t)fuzz_random(rng);
        return size;
    case 2: /* a piece lost */
        return fuzz_splice(buf, size, at, cut, "", 0);
    case 3: /* a word inserted or put in place of something */
        return fuzz_splice(buf, size, at, cut, word, length);
    case 4: /* a piece of another seed */
        if (!other->size)
            return size;
        from = fuzz_random(rng) % other->size;
        n = other->size - from < sizeof piece ? other->size - from : sizeof piece;
        n = fuzz_random(rng) % (n + 1);
        memcpy(piece, (const uint8_t *)other->data + from, n);
        return fuzz_splice(buf, size, at, cut, piece, n);
    default: /* a digit changed, the mutation that stays JSON */
        for (size_t i = 0; i < size; i++) {
            size_t j = (at + i) % size;

            if (buf[j] >= '0' && buf[j] <= '9') {
                buf[j] = (uint8_t)('0' + fuzz_random(rng) % 10);
                return size;
            }
        }
        return size;
    }
}

static inline int fuzz_main(int argc, char **argv, const struct fuzz_seed *seeds, size_t n,
                            long iterations)
{
    uint64_t rng = 1;
    uint8_t *buf = malloc(FUZZ_MAX);

    if (!buf)
        return 1;
    if (argc > 1)
        iterations = strtol(argv[1], NULL, 10);
    for (size_t i = 0; i < n; i++)
        LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].size);
    if (fuzz_accepted != (long)n) {
        printf("%ld of %zu seeds are accepted\n", fuzz_accepted, n);
        free(buf);
        return 1;
    }
    for (long i = 0; i < iterations; i++) {
        const struct fuzz_seed *seed = &seeds[fuzz_random(&rng) % n];
        uint64_t rounds = 1 + fuzz_random(&rng) % 5;
        size_t size = seed->size;
        uint8_t *exact;

        memcpy(buf, seed->data, size);
        for (uint64_t r = 0; r < rounds; r++)
            size = fuzz_mutate(buf, size, &seeds[fuzz_random(&rng) % n], &rng);
        exact = malloc(size ? size : 1); /* so that a byte too far is seen */
        if (!exact)
            return 1;
        memcpy(exact, buf, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    free(buf);
    printf("%zu seeds, %ld mutations, %ld accepted\n", n, iterations, fuzz_accepted);
    return 0;
}

#endif
#endif
