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

/* Length of X of the name "X.safetensors". */
static int stem(const struct sp_st_writer *w)
{
    size_t n = strlen(w->name), end = strlen(".safetensors");

    return (int)(n >= end && !strcmp(w->name + n - end, ".safetensors") ? n - end : n);
}

char *sp_st_shard_name(struct sp_st_writer *w, int i)
{
    size_t size = strlen(w->name) + 48;
    char *name = malloc(size);

    if (!name)
        sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for a name", w->path));
    else
        snprintf(name, size, "%.*s-%05d-of-%05d.safetensors", stem(w), w->name, i + 1, w->n);
    return name;
}

/* "X.safetensors.index.json"; the caller frees it. NULL: no memory, said. */
static char *index_name(struct sp_st_writer *w)
{
    size_t size = strlen(w->name) + 16;
    char *name = malloc(size);

    if (!name)
        sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for a name", w->path));
    else
        snprintf(name, size, "%s.index.json", w->name);
    return name;
}

/* Shards do not replace a model: its files would be of two models on the way. */
int sp_st_refuse_other(struct sp_st_writer *w)
{
    char *index = index_name(w);
    const char *there;
    struct stat st;

    if (!index)
        return w->err;
    there = sp_dir_has(w->dir, w->name, &st) ? ""
            : sp_dir_has(w->dir, index, &st) ? ".index.json"
                                             : NULL;
    if (there)
        sp_st_writer_fail(w,
                          sp_error(EEXIST, "%s%s: is there already, and shards do not replace it",
                                   w->path, there));
    free(index);
    return w->err;
}

static int add_sums(struct sp_st_writer *w, const char *name, json_t *sums)
{
    if (sums && !json_object_set_new(w->sums, name_of(name), sums))
        return 0;
    return sp_st_writer_fail(w, sp_error(ENOMEM, "%s: no memory for checksums", w->path));
}

/* {"metadata": {"total_size": BYTES}, "weight_map": {"tensor": "file"}}, as transformers has it. */
static json_t *pack_index(struct sp_st_writer *w)
{
    json_t *map = json_object(), *shard;
    const char *name;

    json_object_foreach(w->map, name, shard)
    {
        char *file = sp_st_shard_name(w, (int)json_integer_value(shard));

        if (!file || json_object_set_new(map, name, json_string(name_of(file)))) {
            free(file);
            json_decref(map);
            return NULL;
        }
        free(file);
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
        rc = w->err ? w->err : sp_error(ENOMEM, "%s: no memory for an index", w->path);
    else
        rc = sp_output_json_in(w->dir, name, root, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!rc && w->sums)
        rc = add_sums(w, name, sp_file_sum_in(w->dir, name));
    free(name);
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
        char *name = sp_st_shard_name(w, i);

        if (name)
            unlinkat(sp_dir_fd(w->dir), name, 0);
        free(name);
    }
    return rc;
}
