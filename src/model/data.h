/*
 * Training text as tokens: the bytes of any file (vocabulary 256), or tokens as nanoGPT (little-endian uint16
 * or uint32, no header), llm.c (1024 bytes of header) and NumPy (.npy) write them; in one file, or in several
 * that follow each other. They are read from the files as they are needed, so that a file which shrinks under a
 * run is an error like others.
 */
#ifndef SP_DATA_H
#define SP_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_data_file {
    char *path;                 /* of the open file; NULL: `bytes` */
    int fd;                     /* of that file */
    const unsigned char *bytes; /* instead of a file: tokens in memory, of their owner */
    size_t size;                /* bytes, header included */
    size_t begin;               /* bytes before the first token */
    size_t first; /* number of the first token, those of the files before it counted */
    size_t tokens;
    int width; /* bytes a token: 1, 2, 4 or 8 */
};

struct sp_data {
    struct sp_data_file *file; /* [files], in order */
    int files;                 /* 0: none is open */
    size_t tokens;             /* of all files */
    uint64_t text_bytes;       /* of the text that was tokenized for it; 0: none was */
    uint32_t vocab;            /* tokens are below it; 0: not checked */
    bool shuffled;
    bool
        once; /* what lies behind the last token is padding: input 0, target SP_NO_TARGET (kernels/kernels.h) */
    uint64_t seed;
    uint64_t
        origin; /* added to the numbers of samples, modulo 2^64: where the first one asked for lies */
};

/*
 * Opens `names`: a file, or names and patterns ("shard_*.bin") with commas between them, in this order; every
 * token must be below `vocab`. `width`, in bytes: 1, text; 2 or 4, tokens; 0, tokens of the width that a header
 * names, 2 without one. One line on stderr and -errno otherwise: missing, empty, a header that does not fit
 * file or width, not a whole number of tokens, a token too large (named with its position), a vocabulary that
 * two-byte tokens cannot number where nobody gave their width.
 */
int sp_data_open(const char *names, int width, int vocab, struct sp_data *data);
/* Nothing happens if none is open. */
void sp_data_close(struct sp_data *data);

/* The names and patterns of `names` as the files that they stand for: paths[*n], to be freed with
 * sp_data_free_names. 0, or -errno after one line. */
int sp_data_names(const char *names, char ***paths, int *n);
void sp_data_free_names(char **paths, int n);

/* n bytes from byte `at` of a file; threads may share it. 0; or, after one line on stderr, -errno: the file ends
 * earlier than it did when it was opened, or it cannot be read. */
int sp_data_read(const struct sp_data_file *f, size_t at, size_t n, void *to);

/* A word for the contents of all files, and their bytes: see file_digest.h. 0, or -errno after one line. */
int sp_data_digest(const struct sp_data *data, uint64_t *bytes, uint64_t *digest);

/* Opens a regular file for *f: its path, descriptor and size. 0, or -errno after one line. */
int sp_data_open_file(const char *path, struct sp_data_file *f);

/* For the files of this folder that open data: where the tokens of an open file begin, and their width, by its
 * header, or `width` as it was asked for, 2 where it is 0. 0, or -errno after one line. */
int sp_data_read_header(struct sp_data_file *f, int width);

/* Samples of `seq` tokens in a pass over the data: as many as there are whole ones, at least one. */
uint64_t sp_data_samples(const struct sp_data *data, int seq);

/*
 * The place in the data of sample n of a run, origin added: sample k of the data is tokens[k*seq .. k*seq+seq].
 * Sequential: the same number. Shuffled: pass n / sp_data_samples is a permutation of all samples, drawn from
 * the seed and the number of the pass.
 */
uint64_t sp_data_place(const struct sp_data *data, uint64_t n, int seq);

/*
 * Sample n of a run: seq inputs and, shifted by one, seq targets (NULL: not wanted), from its place on, wrapping
 * at the end of the data, or padded where they are read once. Threads may share *data. 0; or -errno after one
 * line as above, also if the file now holds a token that is too large: inputs and targets are undefined then.
 */
int sp_data_sample(const struct sp_data *data, uint64_t n, int seq, int32_t *inputs,
                   int32_t *targets);

/* Token i of tokens of `width` bytes; UINT32_MAX for a number of eight bytes that four cannot hold. */
static inline uint32_t sp_data_token(const unsigned char *bytes, int width, size_t i)
{
    const unsigned char *b = bytes + i * (size_t)width;

    if (width == 1)
        return b[0];
    if (width == 2)
        return (uint32_t)(b[0] | b[1] << 8);
    if (width == 8 && (b[4] | b[5] | b[6] | b[7]))
        return UINT32_MAX;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

#endif
