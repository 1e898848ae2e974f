/* Writing safetensors: declare, then stream. The file is complete or is not there. */
#include "model/files/safetensors_writer.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

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
    struct sp_st_writer_shard *shards = realloc(w->shards, ((size_t)w->n + 1) * sizeof *shards);
    json_t *header;

    if (shards)
        w->shards = shards;
    /* transformers refuses files that do not say which framework wrote them */
    header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!shards || !header) {
        json_decref(header);
        return sp_error(ENOMEM, "%s: no memory for a header", w->path);
    }
    w->shards[w->n++] = (struct sp_st_writer_shard){.header = header};
    return 0;
}

static int open_shard(struct sp_st_writer *w, int i, const char *name)
{
    struct sp_st_writer_shard *s = &w->shards[i];
    int rc = sp_output_open_in(w->dir, name, &s->out);

    s->open = !rc;
    return rc;
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

int sp_st_writer_create_sharded(const char *path, uint64_t shard_bytes, struct sp_st_writer **w)
{
    return sp_st_writer_create_in(NULL, path, shard_bytes, w);
}

int sp_st_writer_create(const char *path, struct sp_st_writer **w)
{
    return sp_st_writer_create_sharded(path, 0, w);
}

/* The entry in the header of the last shard. */
static int add_entry(struct sp_st_writer *w, const char *name, json_t *dims, uint64_t bytes)
{
    struct sp_st_writer_shard *s;
    json_t *entry;

    if (sp_st_shard_begins(&w->filled, bytes, w->limit) && add_shard(w)) {
        json_decref(dims);
        return sp_st_writer_fail(w, -ENOMEM);
    }
    s = &w->shards[w->n - 1];
    entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets",
                      (json_int_t)s->bytes, (json_int_t)(s->bytes + bytes));
    if (!entry || json_object_set_new(s->header, name, entry) ||
        json_object_set_new(w->map, name, json_integer(w->n - 1)))
        return sp_st_writer_fail(
            w, sp_error(EINVAL,
                        "%s: tensor %.80s cannot be declared: no memory, or a name "
                        "that is not UTF-8",
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
        return sp_st_writer_fail(w,
                                 sp_error(EINVAL, "%s: tensor %.80s is declared %s", w->path, name,
                                          w->streaming ? "after the data began" : "twice"));
    dims = json_array();
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes)) {
            json_decref(dims);
            return sp_st_writer_fail(w, sp_error(EINVAL, "%s: dimension %d of tensor %.80s is %lld",
                                                 w->path, i, name, (long long)shape[i]));
        }
        json_array_append_new(dims, json_integer(shape[i]));
    }
    if (__builtin_add_overflow(w->declared, bytes, &end) || end > INT64_MAX) {
        json_decref(dims);
        return sp_st_writer_fail(w, sp_error(EINVAL, "%s: tensor %.80s of %llu bytes is too large",
                                             w->path, name, (unsigned long long)bytes));
    }
    return add_entry(w, name, dims, bytes);
}

/* ---- streaming --------------------------------------------------------------------------- */

static int put(struct sp_st_writer *w, const void *data, size_t size, size_t n)
{
    struct sp_output *out = &w->shards[w->current].out;

    errno = 0;
    sp_activity_touch();
    if (fwrite(data, size, n, out->f) == n) {
        if (w->shards[w->current].sum)
            sp_file_sum_add(w->shards[w->current].sum, data, size * n);
        return 0;
    }
    return sp_st_writer_fail(w, sp_output_fail(out, errno));
}

/* The next tensor in the header of the current shard. */
static void next_tensor(struct sp_st_writer *w, void *tensor)
{
    json_int_t begin = 0, end = 0;

    w->tensor = tensor;
    if (tensor)
        json_unpack(json_object_iter_value(tensor), "{s:[I,I]}", "data_offsets", &begin, &end);
    w->tensor_left = (uint64_t)(end - begin);
}

/* Data with their sums: of each tensor by itself. */
static int put_data(struct sp_st_writer *w, const float *data, size_t n)
{
    struct sp_st_writer_shard *s = &w->shards[w->current];

    while (s->sum && w->tensor && n * sizeof *data >= w->tensor_left) {
        size_t k = (size_t)(w->tensor_left / sizeof *data);

        if (k && put(w, data, sizeof *data, k))
            return w->err;
        sp_file_sum_part(s->sum, json_object_iter_key(w->tensor));
        next_tensor(w, json_object_iter_next(s->header, w->tensor));
        data += k;
        n -= k;
    }
    if (n && put(w, data, sizeof *data, n))
        return w->err;
    w->tensor_left -= s->sum && w->tensor ? n * sizeof *data : 0;
    return 0;
}

/* Writes the header of the current shard. */
static int put_header(struct sp_st_writer *w)
{
    static const char padding[8] = "        ";
    struct sp_st_writer_shard *s = &w->shards[w->current];
    char *json = json_dumps(w->shards[w->current].header, JSON_COMPACT);
    size_t len, pad;
    uint64_t total;
    int rc;

    if (!json)
        return sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for the header", w->path));
    s->sum = w->sums ? sp_file_sum_create() : NULL;
    if (w->sums && !s->sum) {
        free(json);
        return sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for checksums", w->path));
    }
    len = strlen(json);
    pad = (8 - len % 8) % 8; /* readers map the file: keep the data aligned */
    total = len + pad;
    s->out.bytes = sizeof total + total + s->bytes;
    rc = put(w, &total, sizeof total, 1);
    if (!rc)
        rc = put(w, json, 1, len);
    if (!rc && pad)
        rc = put(w, padding, 1, pad);
    free(json);
    if (s->sum) {
        void *metadata = json_object_iter(s->header);

        sp_file_sum_part(s->sum, "header");
        next_tensor(w, json_object_iter_next(s->header, metadata));
    }
    return rc;
}

static int begin_shard(struct sp_st_writer *w, int i)
{
    char *name = sp_st_shard_name(w, i);
    int rc = name ? open_shard(w, i, name) : -ENOMEM;

    free(name);
    w->current = i;
    w->in_shard = 0;
    return rc ? sp_st_writer_fail(w, rc) : put_header(w);
}

/* Ends the declarations and begins the first file. */
static int start(struct sp_st_writer *w)
{
    w->streaming = true;
    if (w->n == 1)
        return put_header(w);
    sp_output_discard(&w->shards[0].out); /* its name is another */
    w->shards[0].open = false;
    return sp_st_refuse_other(w) ? w->err : begin_shard(w, 0);
}

int sp_st_writer_data(struct sp_st_writer *w, const float *data, size_t elements)
{
    uint64_t bytes = (uint64_t)elements * sizeof *data;
    int rc;

    if (w->err)
        return w->err;
    if (!w->streaming && start(w))
        return w->err;
    if (bytes > w->declared - w->written)
        return sp_st_writer_fail(
            w, sp_error(EINVAL, "%s: %llu bytes of data after %llu of %llu declared", w->path,
                        (unsigned long long)bytes, (unsigned long long)w->written,
                        (unsigned long long)w->declared));
    while (elements) {
        struct sp_st_writer_shard *s = &w->shards[w->current];
        uint64_t room = (s->bytes - w->in_shard) / sizeof *data;
        size_t n = elements < room ? elements : (size_t)room;

        if (n && put_data(w, data, n))
            return w->err;
        w->in_shard += n * sizeof *data;
        w->written += n * sizeof *data;
        data += n;
        elements -= n;
        if (!elements)
            break;
        rc = sp_output_close(&s->out);
        if (rc)
            return sp_st_writer_fail(w, rc);
        if (begin_shard(w, w->current + 1))
            return w->err;
    }
    return 0;
}

int sp_st_writer_finish(struct sp_st_writer *w)
{
    int rc;

    if (!w->err && !w->streaming)
        start(w);
    if (!w->err && w->written != w->declared)
        sp_st_writer_fail(w, sp_error(EINVAL, "%s: %llu bytes of data written, %llu declared",
                                      w->path, (unsigned long long)w->written,
                                      (unsigned long long)w->declared));
    rc = w->err ? w->err : sp_st_writer_commit(w);
    sp_st_writer_abort(w); /* what is left of it */
    return rc;
}

void sp_st_writer_abort(struct sp_st_writer *w)
{
    for (int i = 0; i < w->n; i++) {
        if (w->shards[i].open)
            sp_output_discard(&w->shards[i].out);
        json_decref(w->shards[i].header);
        if (w->shards[i].sum)
            json_decref(sp_file_sum_end(w->shards[i].sum));
    }
    free(w->shards);
    json_decref(w->map);
    json_decref(w->sums);
    free(w->path);
    free(w->name);
    free(w);
}
