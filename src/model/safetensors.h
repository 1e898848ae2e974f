/*
 * The safetensors format: 8 bytes of little-endian header length, a JSON header, raw data.
 * Readers trust nothing: sizes, offsets, overlaps, dtypes and the JSON are checked before use.
 */
#ifndef SP_SAFETENSORS_H
#define SP_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sp_st_entry {
    char *name;
    char dtype[8]; /* "F32", "F16" or "BF16" are readable as floats */
    int ndim;
    int64_t shape[8];
    uint64_t begin, end; /* bytes in the data section */
};

struct sp_st_file {
    char *path;
    FILE *f;
    uint64_t data_start; /* file offset of the data section */
    int n;
    struct sp_st_entry *entries;
};

/* Opens and checks a file; one line on stderr and -errno (-EINVAL: malformed) otherwise. */
int sp_st_open(const char *path, struct sp_st_file *st);
void sp_st_close(struct sp_st_file *st);
const struct sp_st_entry *sp_st_find(const struct sp_st_file *st, const char *name);

/* Reads one whole tensor, converted to float; `out` has the product of its shape elements. */
int sp_st_read(const struct sp_st_file *st, const struct sp_st_entry *e, float *out);

/* Elements first .. first+count-1 of a tensor in the order of the file, converted to float. */
int sp_st_read_part(const struct sp_st_file *st, const struct sp_st_entry *e, uint64_t first,
                    size_t count, float *out);

/* Parses a header held in memory (the fuzzer's entry); data_bytes: size of the data section. */
int sp_st_parse_header(const char *json, size_t len, uint64_t data_bytes, const char *where,
                       struct sp_st_entry **entries, int *n);

/*
 * Streaming writer, F32: declare every tensor, then write the data in the same order in any
 * pieces. The file appears under its name only at sp_st_writer_finish (temporary file, fsync,
 * rename), so an interrupted save never replaces a good file.
 */
struct sp_st_writer;
int sp_st_writer_create(const char *path, struct sp_st_writer **w);
int sp_st_writer_declare(struct sp_st_writer *w, const char *name, int ndim, const int64_t *shape);
int sp_st_writer_data(struct sp_st_writer *w, const float *data, size_t elements);
int sp_st_writer_finish(struct sp_st_writer *w); /* frees w; -errno if short or on I/O error */
void sp_st_writer_abort(struct sp_st_writer *w); /* frees w and removes the temporary file */

#endif
