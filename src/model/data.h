/*
 * Training text as tokens, read from a file that is mapped into memory: bytes (vocabulary 256),
 * or little-endian uint16 tokens as nanoGPT and llm.c write them.
 */
#ifndef SP_DATA_H
#define SP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_data {
    const unsigned char *bytes; /* the mapping */
    size_t size;                /* bytes */
    size_t tokens;
    int width; /* bytes a token: 1 or 2 */
    bool shuffled;
    uint64_t seed;
};

/*
 * Maps `path`; every token must be below `vocab`. One line on stderr and -errno otherwise: missing,
 * empty, odd size of a token file, a token too large (named with its position).
 */
int sp_data_open(const char *path, int width, int vocab, struct sp_data *data);
void sp_data_close(struct sp_data *data);

/*
 * Sample n: seq inputs and, shifted by one, seq targets (NULL: not wanted). Sequential: tokens[n*seq .. n*seq+seq],
 * wrapping at the end of the file. Shuffled: from a position drawn from (seed, n).
 */
void sp_data_sample(const struct sp_data *data, uint64_t n, int seq, int32_t *inputs,
                    int32_t *targets);

#endif
