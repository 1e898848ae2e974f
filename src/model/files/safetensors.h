/*
 * The safetensors format: 8 bytes of little-endian header length, a JSON header, raw data. A large
 * model is in several such files, shards, and an index that says which tensor is in which.
 * Readers trust nothing: sizes, offsets, overlaps, dtypes and the JSON are checked before use.
 */
#ifndef SP_SAFETENSORS_H
#define SP_SAFETENSORS_H

#include "model/files/dir.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sp_st_entry {
    char *name;
    char dtype[8]; /* sp_st_is_real: readable as floats */
    int ndim;
    int64_t shape[8];
    uint64_t begin, end; /* bytes in the data section */
    int shard;           /* the file it is in */
};

/* One file on the disk. */
struct sp_st_shard {
    char *path;
    FILE *f;
    uint64_t data_start; /* file offset of the data section */
};

/* A set of tensors, in one file or in the shards that an index names. All zero: not open. */
struct sp_st_file {
    char *path;   /* of the file, or of the index */
    int n_shards; /* 1 without an index */
    struct sp_st_shard *shards;
    int n;
    struct sp_st_entry *entries;
};

/* The most files that an index may name; a larger index is refused unread. */
#define SP_ST_MAX_SHARDS 4096
#define SP_ST_MAX_INDEX_BYTES (16 << 20)

/* Opens and checks a file of `dir`; one line on stderr and -errno (-EINVAL: malformed) otherwise. */
int sp_st_open_in(const struct sp_dir *dir, const char *name, struct sp_st_file *st);
/* The same at a path. */
static inline int sp_st_open(const char *path, struct sp_st_file *st)
{
    return sp_st_open_in(NULL, path, st);
}

/*
 * Opens `name`, a JSON index as transformers writes it beside shards, and all shards that its
 * "weight_map" (tensor name: file name) names, in the same directory. Refused unless every tensor
 * is in the shard that the map says, and in the map.
 */
int sp_st_open_index_in(const struct sp_dir *dir, const char *name, struct sp_st_file *st);
/* The same at a path. */
static inline int sp_st_open_index(const char *path, struct sp_st_file *st)
{
    return sp_st_open_index_in(NULL, path, st);
}

void sp_st_close(struct sp_st_file *st);
const struct sp_st_entry *sp_st_find(const struct sp_st_file *st, const char *name);
/* The path of the file that an entry is in. */
const char *sp_st_path(const struct sp_st_file *st, const struct sp_st_entry *e);

/* True if tensors of that dtype can be read: they become floats, to the nearest. */
#define SP_ST_REALS "F32, F16, BF16 or F64"
bool sp_st_is_real(const char *dtype);

/* Reads one whole tensor, converted to float; `out` has the product of its shape elements. */
int sp_st_read(const struct sp_st_file *st, const struct sp_st_entry *e, float *out);

/* Elements first .. first+count-1 of a tensor in the order of the file, converted to float. */
int sp_st_read_part(const struct sp_st_file *st, const struct sp_st_entry *e, uint64_t first,
                    size_t count, float *out);

/* *same: the two tensors have the same shape and, as floats, the same bits. Returns 0, or -errno if
 * one is unreadable. */
int sp_st_same(const struct sp_st_file *st, const struct sp_st_entry *a,
               const struct sp_st_entry *b, bool *same);

/* Parses a header held in memory; data_bytes: size of the data section. */
int sp_st_parse_header(const char *json, size_t len, uint64_t data_bytes, const char *where,
                       struct sp_st_entry **entries, int *n);

/*
 * Streaming writer, F32, of a file at the path `name`, or of that name in `dir`, which must stay open until the
 * writer is freed: declare every tensor, then write the data in the same order in any pieces. The file appears
 * under its name only at sp_st_writer_finish (temporary file, fsync, rename), so an interrupted save never
 * replaces a good file.
 *
 * When the tensors declared take more than shard_bytes (0: no limit), it writes shards of at most so many bytes and
 * an index in place of "X.safetensors": X-00001-of-0000N.safetensors, ... and X.safetensors.index.json. A tensor is
 * never divided: a larger one has a shard of its own. The shards get their names at sp_st_writer_finish, the index
 * comes last; a directory that has X.safetensors or the index already is refused, -EEXIST.
 */
struct sp_st_writer;
int sp_st_writer_create_in(const struct sp_dir *dir, const char *name, uint64_t shard_bytes,
                           struct sp_st_writer **w);
int sp_st_writer_declare(struct sp_st_writer *w, const char *name, int ndim, const int64_t *shape);
int sp_st_writer_data(struct sp_st_writer *w, const float *data, size_t elements);
int sp_st_writer_finish(struct sp_st_writer *w); /* frees w; -errno if short or on I/O error */
void sp_st_writer_abort(struct sp_st_writer *w); /* frees w and removes the temporary file */

/*
 * To be called before the data. When sp_st_writer_finish returns 0, `files` has the checksums of
 * every file written and of its tensors, under the file's name, in the form that sp_checksums_write
 * takes.
 */
void sp_st_writer_sum(struct sp_st_writer *w, json_t *files);

/*
 * True if a tensor of `bytes` begins another shard when the current one has *filled bytes. *filled
 * becomes the number of bytes in the tensor's shard with the tensor.
 */
bool sp_st_shard_begins(uint64_t *filled, uint64_t bytes, uint64_t shard_bytes);

#endif
