/* The files of a model in shards: their names, their index, and how they appear. */
#include "model/files/safetensors_writer.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sp_st_writer_fail(struct sp_st_writer *w, int rc)
{
    if (!w->err)
        w->err = rc;
    return rc;
}

/* The name of a path in its directory. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Length of X of the path "X.safetensors". */
static int stem(const struct sp_st_writer *w)
{
    size_t n = strlen(w->path), end = strlen(".safetensors");

    return (int)(n >= end && !strcmp(w->path + n - end, ".safetensors") ? n - end : n);
}

char *sp_st_shard_path(struct sp_st_writer *w, int i)
{
    size_t size = strlen(w->path) + 48;
    char *path = malloc(size);

    if (!path)
        sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for a path", w->path));
    else
        snprintf(path, size, "%.*s-%05d-of-%05d.safetensors", stem(w), w->path, i + 1, w->n);
    return path;
}

/* "X.safetensors.index.json"; the caller frees it. NULL: no memory, said. */
static char *index_path(struct sp_st_writer *w)
{
    size_t size = strlen(w->path) + 16;
    char *path = malloc(size);

    if (!path)
        sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for a path", w->path));
    else
        snprintf(path, size, "%s.index.json", w->path);
    return path;
}

/* Shards do not replace a model: its files would be of two models on the way. */
int sp_st_refuse_other(struct sp_st_writer *w)
{
    char *index = index_path(w);
    const char *there;
    struct stat st;

    if (!index)
        return w->err;
    there = !lstat(w->path, &st) ? w->path : !lstat(index, &st) ? index : NULL;
    if (there)
        sp_st_writer_fail(
            w, sp_error(EEXIST, "%s: is there already, and shards do not replace it", there));
    free(index);
    return w->err;
}

static int add_sums(struct sp_st_writer *w, const char *path, json_t *sums)
{
    if (sums && !json_object_set_new(w->sums, name_of(path), sums))
        return 0;
    return sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for checksums", path));
}

/* {"metadata": {"total_size": BYTES}, "weight_map": {"tensor": "file"}}, as transformers has it. */
static json_t *pack_index(struct sp_st_writer *w)
{
    json_t *map = json_object(), *shard;
    const char *name;

    json_object_foreach(w->map, name, shard)
    {
        char *path = sp_st_shard_path(w, (int)json_integer_value(shard));

        if (!path || json_object_set_new(map, name, json_string(name_of(path)))) {
            free(path);
            json_decref(map);
            return NULL;
        }
        free(path);
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)w->declared,
                     "weight_map", map);
}

static int write_index(struct sp_st_writer *w)
{
    char *path = index_path(w);
    json_t *root = pack_index(w);
    struct sp_output out;
    int rc;

    if (!path || !root) {
        rc = w->err ? w->err : sp_error(ENOMEM, "%s: no memory for an index", w->path);
        goto out;
    }
    rc = sp_output_open(path, &out);
    if (rc)
        goto out;
    if (json_dumpf(root, out.f, JSON_INDENT(2) | JSON_SORT_KEYS) || fputc('\n', out.f) == EOF) {
        rc = sp_error(EIO, "%s: cannot be written", path);
        sp_output_discard(&out);
        goto out;
    }
    rc = sp_output_commit(&out);
    if (!rc && w->sums)
        rc = add_sums(w, path, sp_file_sum_of(path));
out:
    free(path);
    json_decref(root);
    return rc;
}

/* The shards get their names, then the index comes; a failure takes the names away again. */
int sp_st_writer_commit(struct sp_st_writer *w)
{
    int rc = 0, named = 0;

    for (; named < w->n && !rc; named++) {
        struct sp_st_writer_shard *s = &w->shards[named];

        if (s->sum)
            rc = add_sums(w, s->out.path, sp_file_sum_end(s->sum));
        s->sum = NULL;
        if (rc)
            break;
        s->open = false;
        rc = sp_output_commit(&s->out);
    }
    if (!rc && w->n > 1)
        rc = write_index(w);
    for (int i = 0; rc && w->n > 1 && i < named; i++) {
        char *path = sp_st_shard_path(w, i);

        if (path)
            unlink(path);
        free(path);
    }
    return rc;
}
