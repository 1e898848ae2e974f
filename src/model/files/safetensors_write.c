/*
 * Writing safetensors: declare, then stream. The files are complete or are not there: the shards get their names
 * once all data are written, and the index comes last.
 */
#define _GNU_SOURCE /* asprintf */
#include "model/files/checksums.h"
#include "model/files/output.h"
#include "model/files/safetensors.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX ".safetensors"

struct shard {
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
    struct shard *shards;
    uint64_t filled;            /* of the last shard declared, for sp_st_shard_begins */
    uint64_t declared, written; /* bytes of data in all shards */
    json_t *map;                /* tensor: [number of its shard, bytes], in the order declared */
    bool streaming;             /* a header has been written */
    void *tensor;  /* iterator of the map: the tensor being written; NULL: none is left */
    int shard;     /* of that tensor */
    uint64_t left; /* bytes of it to come */
    json_t *sums;  /* where the sums of the files go; NULL: not wanted */
    int err;       /* first failure, already reported */
};

/* Keeps the first failure, which the caller has reported; returns rc. */
static int keep_failure(struct sp_st_writer *w, int rc)
{
    w->err = w->err ? w->err : rc;
    return rc;
}

static int no_memory(struct sp_st_writer *w, const char *what)
{
    return keep_failure(w, sp_error(ENOMEM, "%s: no memory for %s", w->path, what));
}

/* ---- names ------------------------------------------------------------------------------- */

/* X-00001-of-0000N.safetensors for the name X.safetensors, i from 0; to be freed. NULL after one line: no memory. */
static char *shard_name(struct sp_st_writer *w, int i)
{
    size_t n = strlen(w->name), end = strlen(SUFFIX);
    int stem = (int)(n >= end && !strcmp(w->name + n - end, SUFFIX) ? n - end : n);
    char *name;

    if (asprintf(&name, "%.*s-%05d-of-%05d" SUFFIX, stem, w->name, i + 1, w->n) >= 0)
        return name;
    no_memory(w, "a name");
    return NULL;
}

/* "X.safetensors.index.json", likewise. */
static char *index_name(struct sp_st_writer *w)
{
    char *name;

    if (asprintf(&name, "%s.index.json", w->name) >= 0)
        return name;
    no_memory(w, "a name");
    return NULL;
}

/* The name of a path in its directory. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool sp_st_shard_begins(uint64_t *filled, uint64_t bytes, uint64_t shard_bytes)
{
    bool begins =
        shard_bytes && bytes && *filled && (*filled > shard_bytes || bytes > shard_bytes - *filled);

    *filled = begins ? bytes : *filled + bytes;
    return begins;
}

/* ---- declaring --------------------------------------------------------------------------- */

static int add_shard(struct sp_st_writer *w)
{
    struct shard *shards = realloc(w->shards, ((size_t)w->n + 1) * sizeof *shards);
    json_t *header;

    if (shards)
        w->shards = shards;
    /* transformers refuses files that do not say which framework wrote them */
    header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!shards || !header) {
        json_decref(header);
        return no_memory(w, "a header");
    }
    w->shards[w->n++] = (struct shard){.header = header};
    return 0;
}

static int open_shard(struct sp_st_writer *w, int i, const char *name)
{
    int rc = sp_output_open_in(w->dir, name, &w->shards[i].out);

    w->shards[i].open = !rc;
    return keep_failure(w, rc);
}

void sp_st_writer_sum(struct sp_st_writer *w, json_t *files)
{
    w->sums = json_incref(files);
}

int sp_st_writer_create_in(const struct sp_dir *dir, const char *name, uint64_t shard_bytes,
                           struct sp_st_writer **w)
{
    struct sp_st_writer *made = calloc(1, sizeof *made);
    int rc;

    if (!made)
        return sp_error(ENOMEM, "%s: no memory for a writer", name);
    made->limit = shard_bytes;
    made->dir = dir;
    made->name = strdup(name);
    made->path = sp_dir_join(dir, name);
    made->map = json_object();
    if (!made->name || !made->path || !made->map)
        rc = sp_error(ENOMEM, "%s: no memory for a writer", name);
    else
        rc = add_shard(made);
    if (!rc)
        rc = open_shard(made, 0, name); /* whether it can be written is said early */
    if (rc)
        sp_st_writer_abort(made);
    else
        *w = made;
    return rc;
}

/* The entry in the header of the last shard. */
static int add_entry(struct sp_st_writer *w, const char *name, json_t *dims, uint64_t bytes)
{
    struct shard *s;
    json_t *entry;

    if (sp_st_shard_begins(&w->filled, bytes, w->limit) && add_shard(w)) {
        json_decref(dims);
        return w->err;
    }
    s = &w->shards[w->n - 1];
    entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets",
                      (json_int_t)s->bytes, (json_int_t)(s->bytes + bytes));
    if (!entry || json_object_set_new(s->header, name, entry) ||
        json_object_set_new(w->map, name, json_pack("[i, I]", w->n - 1, (json_int_t)bytes)))
        return keep_failure(
            w, sp_error(EINVAL,
                        "%s: tensor %.80s cannot be declared: no memory, or a name that "
                        "is not UTF-8",
                        w->path, name));
    s->bytes += bytes;
    w->declared += bytes;
    return 0;
}

int sp_st_writer_declare(struct sp_st_writer *w, const char *name, int ndim, const int64_t *shape)
{
    uint64_t bytes = sizeof(float), end;
    json_t *dims;

    if (w->streaming || json_object_get(w->map, name) || !strcmp(name, "__metadata__"))
        return keep_failure(w, sp_error(EINVAL, "%s: tensor %.80s is declared %s", w->path, name,
                                        w->streaming ? "after the data began" : "twice"));
    dims = json_array();
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes)) {
            json_decref(dims);
            return keep_failure(w, sp_error(EINVAL, "%s: dimension %d of tensor %.80s is %lld",
                                            w->path, i, name, (long long)shape[i]));
        }
        json_array_append_new(dims, json_integer(shape[i]));
    }
    if (__builtin_add_overflow(w->declared, bytes, &end) || end > INT64_MAX) {
        json_decref(dims);
        return keep_failure(w, sp_error(EINVAL, "%s: tensor %.80s of %llu bytes is too large",
                                        w->path, name, (unsigned long long)bytes));
    }
    return add_entry(w, name, dims, bytes);
}

/* ---- streaming --------------------------------------------------------------------------- */

/* Writes to the current shard. */
static int write_elements(struct sp_st_writer *w, const void *data, size_t size, size_t n)
{
    struct shard *s = &w->shards[w->current];

    errno = 0;
    sp_activity_touch();
    if (fwrite(data, size, n, s->out.f) != n)
        return keep_failure(w, sp_output_fail(&s->out, errno));
    sp_file_sum_add(s->sum, data, size * n);
    return 0;
}

/* Goes on to a tensor of the map. */
static void begin_tensor(struct sp_st_writer *w, void *tensor)
{
    json_int_t bytes = 0;

    w->tensor = tensor;
    if (tensor)
        json_unpack(json_object_iter_value(tensor), "[i, I]", &w->shard, &bytes);
    w->left = (uint64_t)bytes;
}

/* Ends the tensors of the current shard that are complete, empty ones too. */
static void end_tensors(struct sp_st_writer *w)
{
    while (w->tensor && !w->left && w->shard == w->current) {
        sp_file_sum_part(w->shards[w->current].sum, json_object_iter_key(w->tensor));
        begin_tensor(w, json_object_iter_next(w->map, w->tensor));
    }
}

/* Writes the header of the current shard. */
static int write_header(struct sp_st_writer *w)
{
    static const char padding[8] = "        ";
    struct shard *s = &w->shards[w->current];
    char *json = json_dumps(s->header, JSON_COMPACT);
    size_t len = json ? strlen(json) : 0;
    size_t pad = (8 - len % 8) % 8; /* readers map the file: keep the data aligned */
    uint64_t total = len + pad;
    int rc;

    if (!json)
        return no_memory(w, "the header");
    s->sum = w->sums ? sp_file_sum_create() : NULL;
    s->out.bytes = sizeof total + total + s->bytes;
    rc =
        w->sums && !s->sum ? no_memory(w, "checksums") : write_elements(w, &total, sizeof total, 1);
    rc = rc ? rc : write_elements(w, json, 1, len);
    if (!rc && pad)
        rc = write_elements(w, padding, 1, pad);
    free(json);
    sp_file_sum_part(s->sum, "header");
    end_tensors(w);
    return rc;
}

static int begin_shard(struct sp_st_writer *w, int i)
{
    char *name = shard_name(w, i);
    int rc = name ? open_shard(w, i, name) : w->err;

    free(name);
    w->current = i;
    return rc ? rc : write_header(w);
}

/* Shards do not replace a model: its files would be of two models on the way. */
static int refuse_other(struct sp_st_writer *w)
{
    char *index = index_name(w);
    const char *there;
    struct stat st;

    if (!index)
        return w->err;
    there = sp_dir_has(w->dir, w->name, &st) ? ""
            : sp_dir_has(w->dir, index, &st) ? ".index.json"
                                             : NULL;
    free(index);
    return there ? keep_failure(w, sp_error(EEXIST,
                                            "%s%s: is there already, and shards do not replace it",
                                            w->path, there))
                 : 0;
}

/* Ends the declarations and begins the first file. */
static int begin_files(struct sp_st_writer *w)
{
    w->streaming = true;
    begin_tensor(w, json_object_iter(w->map));
    if (w->n == 1)
        return write_header(w);
    sp_output_discard(&w->shards[0].out); /* its name is another */
    w->shards[0].open = false;
    return refuse_other(w) ? w->err : begin_shard(w, 0);
}

/* Ends the file of the current shard, and begins that of the tensor that comes. */
static int next_shard(struct sp_st_writer *w)
{
    return keep_failure(w, sp_output_close(&w->shards[w->current].out)) ? w->err
                                                                        : begin_shard(w, w->shard);
}

int sp_st_writer_data(struct sp_st_writer *w, const float *data, size_t elements)
{
    uint64_t bytes = (uint64_t)elements * sizeof *data;

    if (w->err)
        return w->err;
    if (!w->streaming && begin_files(w))
        return w->err;
    if (bytes > w->declared - w->written)
        return keep_failure(
            w, sp_error(EINVAL, "%s: %llu bytes of data after %llu of %llu declared", w->path,
                        (unsigned long long)bytes, (unsigned long long)w->written,
                        (unsigned long long)w->declared));
    while (elements) {
        size_t n;

        if (w->shard != w->current && next_shard(w))
            return w->err;
        n = elements < w->left / sizeof *data ? elements : (size_t)(w->left / sizeof *data);
        if (write_elements(w, data, sizeof *data, n))
            return w->err;
        w->left -= n * sizeof *data;
        w->written += n * sizeof *data;
        data += n;
        elements -= n;
        end_tensors(w);
    }
    return 0;
}

/* ---- finishing --------------------------------------------------------------------------- */

static int add_sums(struct sp_st_writer *w, const char *name, json_t *sums)
{
    if (sums && !json_object_set_new(w->sums, name_of(name), sums))
        return 0;
    return no_memory(w, "checksums");
}

/* {"metadata": {"total_size": BYTES}, "weight_map": {"tensor": "file"}}, as transformers has it. */
static json_t *pack_index(struct sp_st_writer *w)
{
    json_t *map = json_object(), *place;
    const char *tensor;

    json_object_foreach(w->map, tensor, place)
    {
        char *file = shard_name(w, (int)json_integer_value(json_array_get(place, 0)));
        int failed = !file || json_object_set_new(map, tensor, json_string(name_of(file)));

        free(file);
        if (failed) {
            json_decref(map);
            return NULL;
        }
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)w->declared,
                     "weight_map", map);
}

static int write_index(struct sp_st_writer *w)
{
    char *name = index_name(w);
    json_t *root = pack_index(w);
    int rc;

    if (!name || !root)
        rc = w->err ? w->err : no_memory(w, "an index");
    else
        rc = sp_output_json_in(w->dir, name, root, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!rc && w->sums)
        rc = add_sums(w, name, sp_file_sum_in(w->dir, name));
    free(name);
    json_decref(root);
    return rc;
}

/* Gives the files their names, then writes the index if there are shards; a failure takes the names away again. */
static int commit_files(struct sp_st_writer *w)
{
    int rc = 0, named = 0;

    for (; named < w->n && !rc; named++) {
        struct shard *s = &w->shards[named];

        if (s->sum)
            rc = add_sums(w, s->out.name, sp_file_sum_end(s->sum));
        s->sum = NULL;
        if (rc)
            break;
        s->open = false;
        rc = sp_output_commit(&s->out);
    }
    if (!rc && w->n > 1)
        rc = write_index(w);
    for (int i = 0; rc && w->n > 1 && i < named; i++) {
        char *name = shard_name(w, i);

        if (name)
            unlinkat(sp_dir_fd(w->dir), name, 0);
        free(name);
    }
    return rc;
}

int sp_st_writer_finish(struct sp_st_writer *w)
{
    int rc;

    if (!w->err && !w->streaming)
        begin_files(w);
    if (!w->err && w->written != w->declared)
        keep_failure(w, sp_error(EINVAL, "%s: %llu bytes of data written, %llu declared", w->path,
                                 (unsigned long long)w->written, (unsigned long long)w->declared));
    rc = w->err ? w->err : commit_files(w);
    sp_st_writer_abort(w); /* what is left of it */
    return rc;
}

void sp_st_writer_abort(struct sp_st_writer *w)
{
    for (int i = 0; i < w->n; i++) {
        if (w->shards[i].open)
            sp_output_discard(&w->shards[i].out);
        json_decref(w->shards[i].header);
        json_decref(sp_file_sum_end(w->shards[i].sum));
    }
    free(w->shards);
    json_decref(w->map);
    json_decref(w->sums);
    free(w->path);
    free(w->name);
    free(w);
}
