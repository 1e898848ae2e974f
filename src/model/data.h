/*
 * Training text as tokens: the bytes of any file (vocabulary 256), or little-endian uint16 or uint32
 * tokens as nanoGPT (no header) and llm.c (1024 bytes of header) write them. They are read from the
 * file as they are needed, so that a file which shrinks under a run is an error like others.
 */
#ifndef SP_DATA_H
#define SP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_data {
    char *path;                 /* of the open file; NULL: there is none */
    int fd;                     /* of that file */
    const unsigned char *bytes; /* instead of a file: tokens in memory, of their owner */
    size_t size;                /* bytes, header included */
    size_t begin;               /* bytes before the first token */
    size_t tokens;
    int width;      /* bytes a token: 1, 2 or 4 */
    uint32_t vocab; /* tokens are below it; 0: not checked */
    bool shuffled;
    uint64_t seed;
};

/*
 * Opens `path`; every token must be below `vocab`. `width`, in bytes: 1, text; 2 or 4, tokens; 0,
 * tokens of the width that the header names, 2 without one. One line on stderr and -errno otherwise:
 * missing, empty, a header that does not fit file or width, not a whole number of tokens, a token
 * too large (named with its position).
 */
int sp_data_open(const char *path, int width, int vocab, struct sp_data *data);
/* Nothing happens if none is open. */
void sp_data_close(struct sp_data *data);

/* n bytes from byte `at` of the file; threads may share *data. 0; or, after one line on stderr, -errno:
 * the file ends earlier than it did when it was opened, or it cannot be read. */
int sp_data_read(const struct sp_data *data, size_t at, size_t n, void *to);

/*
 * Sample n: seq inputs and, shifted by one, seq targets (NULL: not wanted). Sequential: tokens[n*seq .. n*seq+seq],
 * wrapping at the end of the file. Shuffled: from a position drawn from (seed, n). Threads may share
 * *data. 0; or -errno after one line as above, also if the file now holds a token that is too large:
 * inputs and targets are undefined then.
 */
int sp_data_sample(const struct sp_data *data, uint64_t n, int seq, int32_t *inputs,
                   int32_t *targets);

/* Token i of tokens of `width` bytes. */
static inline uint32_t sp_data_token(const unsigned char *bytes, int width, size_t i)
{
    const unsigned char *b = bytes + i * (size_t)width;

    if (width == 1)
        return b[0];
    if (width == 2)
        return (uint32_t)(b[0] | b[1] << 8);
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

#endif
