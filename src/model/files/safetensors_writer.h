/* Shared by the two files of the safetensors writer: one streams data, one makes names and the
 * index. */
#ifndef SP_SAFETENSORS_WRITER_H
#define SP_SAFETENSORS_WRITER_H

#include "model/files/checksums.h"
#include "model/files/output.h"
#include "model/files/safetensors.h"
#include <jansson.h>

struct sp_st_writer_shard {
    json_t *header;
    uint64_t bytes; /* of data */
    struct sp_output out;
    bool open;               /* `out` is there, to be committed or discarded */
    struct sp_file_sum *sum; /* of what was written to it; NULL: not wanted */
};

struct sp_st_writer {
    const struct sp_dir *dir; /* NULL: the name is a path */
    char *name;               /* X.safetensors */
    char *path;               /* for messages */
    uint64_t limit;           /* bytes of a shard; 0: unlimited */
    int n, current;           /* shards; the one being written */
    struct sp_st_writer_shard *shards;
    uint64_t filled;            /* of the last shard declared, for sp_st_shard_begins */
    uint64_t declared, written; /* bytes of data in all shards */
    uint64_t in_shard;          /* bytes written of the current one */
    json_t *map;                /* tensor: number of its shard */
    bool streaming;             /* a header has been written */
    json_t *sums;               /* where the sums of the files go; NULL: not wanted */
    void *tensor;               /* iterator of the current header: the tensor being written */
    uint64_t tensor_left;       /* bytes of it to come */
    int err;                    /* first failure, already reported */
};

/* Keeps the first failure, which the caller has reported; returns rc. */
int sp_st_writer_fail(struct sp_st_writer *w, int rc);

/* X-00001-of-0000N.safetensors for the name X.safetensors, i from 0. The caller frees it; NULL
 * after one line: no memory. */
char *sp_st_shard_name(struct sp_st_writer *w, int i);

/* Before shards are written, refuses a directory that has files of another model. Returns 0, or
 * -errno after one line. */
int sp_st_refuse_other(struct sp_st_writer *w);

/* Gives the files their names, then writes the index if there are shards. Returns 0, or -errno
 * after one line. */
int sp_st_writer_commit(struct sp_st_writer *w);

#endif
