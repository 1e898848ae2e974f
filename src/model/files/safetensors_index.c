/*
 * The index of shards: {"metadata": {...}, "weight_map": {"tensor": "file", ...}}. The map and the
 * shards must say the same of every tensor.
 */
#include "model/files/foreign_json.h"
#include "model/files/input.h"
#include "model/files/safetensors.h"
#include "model/try.h"
#include "sp_error.h"
#include "sp_text.h"
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef NAME_MAX
#define NAME_MAX 255
#endif

/* An index while its shards are opened. */
struct index {
    const struct sp_dir *dir; /* NULL: the name is a path */
    const char *name, *path;  /* path: for messages */
    json_t *root, *map;       /* map: a part of root */
    json_t *shards;  /* file name: the first tensor said to be in it, in the order of the map */
    json_t *missing; /* of the map, what no shard opened so far holds */
};

static int read_map(struct index *x)
{
    json_error_t err;
    char *text;
    size_t len;

    SP_TRY(sp_input_read_in(x->dir, x->name, SP_ST_MAX_INDEX_BYTES, "an index", &text, &len));
    x->root = sp_foreign_json(text, len, &err);
    free(text);
    if (!x->root)
        return sp_error(EINVAL, "%s: line %d: not valid JSON: %s", x->path, err.line, err.text);
    x->map = json_object_get(x->root, "weight_map");
    if (!json_is_object(x->map))
        return sp_error(EINVAL, "%s: no weight_map that says where each tensor is", x->path);
    if (!json_object_size(x->map))
        return sp_error(EINVAL, "%s: weight_map names no tensor", x->path);
    return 0;
}

/* The name of a file beside the index, and of nothing else. */
static int check_file_name(const char *file, const char *tensor, const char *where)
{
    bool plain = *file && strcmp(file, ".") && strcmp(file, "..") && strlen(file) <= NAME_MAX &&
                 !strchr(file, '/') && sp_text_is_plain(file);

    return plain ? 0
                 : sp_error(EINVAL,
                            "%s: tensor %.80s is said to be in '%.80s', no name of a file here",
                            where, tensor, file);
}

/* Fills x->shards from the map. */
static int list_shards(struct index *x)
{
    const char *name;
    json_t *v;

    json_object_foreach(x->map, name, v)
    {
        const char *file = json_string_value(v);

        SP_TRY(sp_st_check_name(name, x->path));
        if (!file)
            return sp_error(EINVAL, "%s: tensor %.80s: its file is no text", x->path, name);
        SP_TRY(check_file_name(file, name, x->path));
        if (json_object_get(x->shards, file))
            continue;
        if (json_object_size(x->shards) == SP_ST_MAX_SHARDS)
            return sp_error(EINVAL, "%s: more than %d shards", x->path, SP_ST_MAX_SHARDS);
        if (json_object_set_new(x->shards, file, json_string(name)))
            return sp_error(ENOMEM, "%s: no memory for its shards", x->path);
    }
    return 0;
}

/* Every tensor of a shard is in the map, and there it is of this shard. */
static int check_shard(struct index *x, const char *file, const struct sp_st_file *one)
{
    for (int i = 0; i < one->n; i++) {
        const char *name = one->entries[i].name;
        const char *said = json_string_value(json_object_get(x->map, name));

        if (!said)
            return sp_error(EINVAL, "%s: tensor %.80s of %s is not in the index", x->path, name,
                            file);
        if (strcmp(said, file))
            return sp_error(EINVAL, "%s: tensor %.80s is in %s, the index says in %s", x->path,
                            name, file, said);
        json_object_del(x->missing, name);
    }
    return 0;
}

/* Moves the one shard of `one` with its tensors into the set. */
static int absorb(struct sp_st_file *set, struct sp_st_file *one)
{
    size_t n = (size_t)set->n + (size_t)one->n; /* at most as many as names in the index */
    struct sp_st_entry *entries = realloc(set->entries, (n + 1) * sizeof *entries);

    if (!entries)
        return sp_error(ENOMEM, "%s: no memory for %zu tensors", set->path, n);
    set->entries = entries;
    for (int i = 0; i < one->n; i++) {
        one->entries[i].shard = set->n_shards;
        entries[set->n++] = one->entries[i];
    }
    set->shards[set->n_shards++] = one->shards[0];
    one->n = one->n_shards = 0;
    return 0;
}

static int open_shard(struct index *x, const char *file, const char *tensor, struct sp_st_file *set)
{
    const char *slash = strrchr(x->name, '/');
    int before = slash ? (int)(slash + 1 - x->name) : 0; /* of a path */
    struct sp_st_file one = {0};
    char *name = malloc((size_t)before + strlen(file) + 1);
    int rc, fd;

    if (!name)
        return sp_error(ENOMEM, "%s: no memory for a path", x->path);
    sprintf(name, "%.*s%s", before, x->name, file);
    fd = sp_dir_file(x->dir, name);
    if (fd == -ENOENT)
        rc = sp_error(ENOENT, "%s: tensor %.80s is said to be in %s: %s", x->path, tensor, file,
                      strerror(ENOENT));
    else
        rc = sp_st_open_in(x->dir, name, &one);
    if (fd >= 0)
        close(fd);
    free(name);
    if (rc)
        return rc;
    rc = check_shard(x, file, &one);
    if (!rc)
        rc = absorb(set, &one);
    sp_st_close(&one);
    return rc;
}

static int open_shards(struct index *x, struct sp_st_file *set)
{
    const char *file, *name;
    json_t *v;

    x->missing = json_copy(x->map);
    set->shards = calloc(json_object_size(x->shards), sizeof *set->shards);
    if (!set->shards || !x->missing)
        return sp_error(ENOMEM, "%s: no memory for its shards", x->path);
    json_object_foreach(x->shards, file, v)
    {
        SP_TRY(open_shard(x, file, json_string_value(v), set));
    }
    json_object_foreach(x->missing, name, v) return sp_error(
        EINVAL, "%s: tensor %.80s is not in %s, where the index says", x->path, name,
        json_string_value(v));
    return 0;
}

int sp_st_open_index_in(const struct sp_dir *dir, const char *name, struct sp_st_file *st)
{
    struct sp_st_file set = {.path = sp_dir_join(dir, name)};
    struct index x = {.dir = dir, .name = name, .path = set.path, .shards = json_object()};
    int rc = set.path ? read_map(&x) : sp_error(ENOMEM, "%s: no memory for its path", name);

    rc = rc ? rc : list_shards(&x);
    rc = rc ? rc : open_shards(&x, &set);
    json_decref(x.shards);
    json_decref(x.missing);
    json_decref(x.root);
    if (rc)
        sp_st_close(&set);
    else
        *st = set;
    return rc;
}
