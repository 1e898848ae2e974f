/*
 * The JSON of safetensors: the header of a file, where every tensor is where it says and nothing else is; and the index
 * of shards, {"metadata": {...}, "weight_map": {"tensor": "file", ...}}, which says the same of every tensor as they.
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

#define MAX_DIMS ((int)(sizeof((struct sp_st_entry *)0)->shape / sizeof(int64_t)))

/* Bits of an element; 0: unknown, then the size of the tensor cannot be checked. */
static unsigned dtype_bits(const char *dtype)
{
    static const struct {
        const char *name;
        unsigned bits;
    } known[] = {{"F32", 32},    {"F16", 16},   {"BF16", 16}, {"F64", 64}, {"I64", 64},
                 {"U64", 64},    {"I32", 32},   {"U32", 32},  {"I16", 16}, {"U16", 16},
                 {"I8", 8},      {"U8", 8},     {"BOOL", 8},  {"C64", 64}, {"F8_E4M3", 8},
                 {"F8_E5M2", 8}, {"F8_E8M0", 8}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(dtype, known[i].name))
            return known[i].bits;
    return 0;
}

/* A name goes into messages and is compared as text. */
static int check_name(const char *name, const char *where)
{
    if (!*name)
        return sp_error(EINVAL, "%s: a tensor without a name", where);
    if (!sp_text_is_plain(name))
        return sp_error(EINVAL, "%s: control characters in the name of a tensor: %.80s", where,
                        name);
    return 0;
}

static int parse_shape(const json_t *shape, const char *name, const char *where,
                       struct sp_st_entry *e, uint64_t *elements)
{
    if (!json_is_array(shape))
        return sp_error(EINVAL, "%s: tensor %.80s: shape is not a list", where, name);
    if (json_array_size(shape) > (size_t)MAX_DIMS)
        return sp_error(EINVAL, "%s: tensor %.80s has %zu dimensions, at most %d are supported",
                        where, name, json_array_size(shape), MAX_DIMS);
    e->ndim = (int)json_array_size(shape);
    *elements = 1;
    for (int i = 0; i < e->ndim; i++) {
        const json_t *v = json_array_get(shape, (size_t)i);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return sp_error(EINVAL, "%s: tensor %.80s: dimension %d is not a size", where, name, i);
        e->shape[i] = json_integer_value(v);
        if (__builtin_mul_overflow(*elements, (uint64_t)e->shape[i], elements))
            return sp_error(EINVAL, "%s: tensor %.80s: the product of its dimensions overflows",
                            where, name);
    }
    return 0;
}

static int parse_offsets(const json_t *offsets, const char *name, uint64_t data_bytes,
                         const char *where, struct sp_st_entry *e)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < 0)
        return sp_error(EINVAL, "%s: tensor %.80s: data_offsets are not two sizes", where, name);
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    if (e->begin > e->end)
        return sp_error(EINVAL, "%s: tensor %.80s begins at %llu, after its end at %llu", where,
                        name, (unsigned long long)e->begin, (unsigned long long)e->end);
    if (e->end > data_bytes)
        return sp_error(EINVAL, "%s: tensor %.80s ends at %llu, the data at %llu: file truncated?",
                        where, name, (unsigned long long)e->end, (unsigned long long)data_bytes);
    return 0;
}

static int parse_entry(const char *name, const json_t *v, uint64_t data_bytes, const char *where,
                       struct sp_st_entry *e)
{
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    uint64_t elements = 0, bits;
    unsigned width;

    SP_TRY(check_name(name, where));
    if (!json_is_object(v))
        return sp_error(EINVAL, "%s: tensor %.80s is not described by an object", where, name);
    if (!dtype)
        return sp_error(EINVAL, "%s: tensor %.80s: dtype is missing", where, name);
    SP_TRY(check_name(dtype, where));
    SP_TRY(parse_shape(json_object_get(v, "shape"), name, where, e, &elements));
    SP_TRY(parse_offsets(json_object_get(v, "data_offsets"), name, data_bytes, where, e));
    width = dtype_bits(dtype);
    if (width &&
        (__builtin_mul_overflow(elements, (uint64_t)width, &bits) || bits / 8 != e->end - e->begin))
        return sp_error(EINVAL, "%s: tensor %.80s has %llu elements of %s in %llu bytes", where,
                        name, (unsigned long long)elements, dtype,
                        (unsigned long long)(e->end - e->begin));
    snprintf(e->dtype, sizeof e->dtype, "%s", dtype);
    e->name = strdup(name);
    return e->name ? 0 : sp_error(ENOMEM, "%s: no memory for its names", where);
}

static int by_offset(const void *a, const void *b)
{
    const struct sp_st_entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The format wants the data covered exactly once. */
static int check_cover(const struct sp_st_entry *entries, int n, uint64_t data_bytes,
                       const char *where)
{
    uint64_t end = 0;

    for (int i = 0; i < n; i++) {
        if (entries[i].begin != end)
            return sp_error(EINVAL, "%s: tensor %.80s begins at %llu, %s at %llu", where,
                            entries[i].name, (unsigned long long)entries[i].begin,
                            entries[i].begin < end ? "inside another that ends"
                                                   : "leaving a hole that begins",
                            (unsigned long long)end);
        end = entries[i].end;
    }
    if (end != data_bytes)
        return sp_error(EINVAL, "%s: %llu bytes of data, the tensors fill %llu", where,
                        (unsigned long long)data_bytes, (unsigned long long)end);
    return 0;
}

/* One JSON object; nothing but padding may follow, which jansson checks. */
static int load_json(const char *json, size_t len, const char *where, json_t **root)
{
    json_error_t err;

    *root = sp_foreign_json(json, len, &err);
    if (!*root)
        return sp_error(EINVAL, "%s: byte %d of the header: not valid JSON: %s", where,
                        err.position, err.text);
    if (!json_is_object(*root)) {
        json_decref(*root);
        return sp_error(EINVAL, "%s: the header is not a JSON object", where);
    }
    return 0;
}

/* The tensors of the header in the order of their data. */
static int parse_entries(json_t *root, uint64_t data_bytes, const char *where,
                         struct sp_st_file *made)
{
    const char *name;
    json_t *v;

    if (json_object_size(root) > INT_MAX)
        return sp_error(EINVAL, "%s: %zu tensors are too many", where, json_object_size(root));
    made->entries = calloc(json_object_size(root) + 1, sizeof *made->entries);
    if (!made->entries)
        return sp_error(ENOMEM, "%s: no memory for %zu tensors", where, json_object_size(root));
    json_object_foreach(root, name, v)
    {
        if (!strcmp(name, "__metadata__"))
            continue;
        SP_TRY(parse_entry(name, v, data_bytes, where, &made->entries[made->n]));
        made->n++;
    }
    qsort(made->entries, (size_t)made->n, sizeof *made->entries, by_offset);
    return check_cover(made->entries, made->n, data_bytes, where);
}

int sp_st_parse_header(const char *json, size_t len, uint64_t data_bytes, const char *where,
                       struct sp_st_entry **entries, int *n)
{
    struct sp_st_file made = {0}; /* for sp_st_close to undo */
    json_t *root;
    int rc;

    SP_TRY(load_json(json, len, where, &root));
    rc = parse_entries(root, data_bytes, where, &made);
    json_decref(root);
    if (rc) {
        sp_st_close(&made);
        return rc;
    }
    *entries = made.entries;
    *n = made.n;
    return 0;
}

/* ---- the index --------------------------------------------------------------------------- */

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

        SP_TRY(check_name(name, x->path));
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
