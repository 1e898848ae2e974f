#include "model/files/checksums.h"
#include "model/files/input.h"
#include "model/files/output.h"
#include "model/files/weights_dir.h"
#include "sp_activity.h"
#include "model/try.h"
#include "sp_error.h"
#define XXH_INLINE_ALL
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define ALGORITHM "XXH3_128bits"

enum { HEX = 33, PIECE = 1 << 20, MOST_BYTES = 256 << 20 };

/* ---- summing ---------------------------------------------------------------------------- */

static void print_hash(XXH128_hash_t h, char hex[HEX])
{
    snprintf(hex, HEX, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

struct sp_file_sum {
    XXH3_state_t *whole, *part;
    uint64_t bytes, begin; /* so far; of the part */
    json_t *parts;
};

struct sp_file_sum *sp_file_sum_create(void)
{
    struct sp_file_sum *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->whole = XXH3_createState();
    s->part = XXH3_createState();
    s->parts = json_array();
    if (!s->whole || !s->part || !s->parts) {
        json_decref(sp_file_sum_end(s));
        return NULL;
    }
    XXH3_128bits_reset(s->whole);
    XXH3_128bits_reset(s->part);
    return s;
}

void sp_file_sum_add(struct sp_file_sum *s, const void *data, size_t bytes)
{
    if (!s)
        return;
    XXH3_128bits_update(s->whole, data, bytes);
    XXH3_128bits_update(s->part, data, bytes);
    s->bytes += bytes;
}

void sp_file_sum_part(struct sp_file_sum *s, const char *name)
{
    char hex[HEX];

    if (!s)
        return;
    print_hash(XXH3_128bits_digest(s->part), hex);
    json_array_append_new(
        s->parts, json_pack("[s,I,I,s]", name, (json_int_t)s->begin, (json_int_t)s->bytes, hex));
    XXH3_128bits_reset(s->part);
    s->begin = s->bytes;
}

json_t *sp_file_sum_end(struct sp_file_sum *s)
{
    json_t *sums = NULL;
    char hex[HEX];

    if (!s)
        return NULL;
    if (s->whole && s->part && s->parts) {
        print_hash(XXH3_128bits_digest(s->whole), hex);
        sums = json_pack("{s:I,s:s}", "bytes", (json_int_t)s->bytes, "checksum", hex);
        if (sums && json_array_size(s->parts))
            json_object_set(sums, "parts", s->parts);
    }
    json_decref(s->parts);
    XXH3_freeState(s->whole);
    XXH3_freeState(s->part);
    free(s);
    return sums;
}

/* ---- files ------------------------------------------------------------------------------ */

/* Adds bytes begin .. end of a file. 0 or -errno after one line. */
static int add_range(int fd, const char *path, uint64_t begin, uint64_t end, struct sp_file_sum *s)
{
    unsigned char *piece = malloc(PIECE);
    int err = piece ? 0 : sp_error(ENOMEM, "%s: no memory to check it", path);

    while (!err && begin < end) {
        size_t want = end - begin < PIECE ? (size_t)(end - begin) : PIECE;
        ssize_t got = pread(fd, piece, want, (off_t)begin);

        sp_activity_touch();
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            err = sp_error(EIO, "%s: cannot be read: %s", path,
                           got < 0 ? strerror(errno) : "it has become shorter");
        else
            sp_file_sum_add(s, piece, (size_t)got);
        begin += got > 0 ? (uint64_t)got : 0;
    }
    free(piece);
    return err;
}

/* Sums of a range; NULL after one line. */
static json_t *sum_range(int fd, const char *path, uint64_t begin, uint64_t end)
{
    struct sp_file_sum *s = sp_file_sum_create();
    json_t *sums;
    int err = s ? add_range(fd, path, begin, end, s) : -ENOMEM;

    sums = sp_file_sum_end(s);
    if (!err)
        return sums;
    json_decref(sums);
    return NULL;
}

json_t *sp_file_sum_in(const struct sp_dir *dir, const char *name)
{
    uint64_t bytes;
    FILE *f = NULL;
    json_t *sums;

    if (sp_input_open(dir, name, &f, &bytes))
        return NULL;
    sums = sum_range(fileno(f), name, 0, bytes);
    fclose(f);
    return sums;
}

int sp_checksums_write(const struct sp_dir *dir, json_t *files)
{
    json_t *root = json_pack("{s:s,s:o}", "algorithm", ALGORITHM, "files", files);
    int err = root ? sp_output_json_in(dir, SP_CHECKSUMS_FILE, root, SP_OUTPUT_JSON)
                   : sp_error(ENOMEM, "%s/" SP_CHECKSUMS_FILE ": no memory", dir->path);

    json_decref(root);
    return err;
}

/* ---- verifying -------------------------------------------------------------------------- */

struct check {
    const struct sp_dir *dir;
    bool (*wanted)(const char *name); /* NULL: every file */
    const char *remedy;
    int share, shares, next; /* parts are dealt out in turns */
};

static bool is_hash(const char *hex)
{
    return hex && strlen(hex) == HEX - 1;
}

/* A part of a file, as it was saved. */
struct saved_part {
    const char *name; /* NULL: the whole file */
    uint64_t begin, end;
    const char *hash;
};

static int compare_part(struct check *c, int fd, const char *path, const struct saved_part *part)
{
    json_t *sums;
    const char *has;
    int err = 0;

    if (c->next++ % c->shares != c->share)
        return 0;
    sums = sum_range(fd, path, part->begin, part->end);
    if (!sums)
        return -EIO;
    has = json_string_value(json_object_get(sums, "checksum"));
    if (strcmp(has, part->hash))
        err = sp_error(EINVAL, "%s: damaged: %s%s has checksum %s, %s was saved; %s", path,
                       part->name ? "tensor " : "it", part->name ? part->name : "", has, part->hash,
                       c->remedy);
    json_decref(sums);
    return err;
}

/* The parts of a file, which must cover it. */
static int check_parts(struct check *c, int fd, const char *path, const json_t *parts,
                       uint64_t bytes)
{
    uint64_t at = 0;
    json_t *part;
    size_t i;

    json_array_foreach(parts, i, part)
    {
        const char *name, *hash;
        json_int_t begin, end;

        if (json_unpack(part, "[s,I,I,s!]", &name, &begin, &end, &hash) || !is_hash(hash) ||
            begin < 0 || (uint64_t)begin != at || end < begin || (uint64_t)end > bytes)
            return sp_error(EINVAL, "%s/" SP_CHECKSUMS_FILE ": damaged at part %zu of %s",
                            c->dir->path, i + 1, path);
        SP_TRY(compare_part(c, fd, path, &(struct saved_part){name, at, (uint64_t)end, hash}));
        at = (uint64_t)end;
    }
    return at == bytes
               ? 0
               : sp_error(EINVAL, "%s/" SP_CHECKSUMS_FILE ": no checksum of %s from byte %llu",
                          c->dir->path, path, (unsigned long long)at);
}

static int check_file(struct check *c, const char *name, const json_t *sums)
{
    const char *hash = json_string_value(json_object_get(sums, "checksum"));
    const json_t *size = json_object_get(sums, "bytes"), *parts = json_object_get(sums, "parts");
    char path[4400];
    FILE *f = NULL;
    uint64_t bytes;
    int err;

    snprintf(path, sizeof path, "%s/%s", c->dir->path, name);
    if (!is_hash(hash) || !json_is_integer(size) || (parts && !json_is_array(parts)) ||
        strchr(name, '/'))
        return sp_error(EINVAL, "%s/" SP_CHECKSUMS_FILE ": damaged at %.80s", c->dir->path, name);
    SP_TRY(sp_input_open(c->dir, name, &f, &bytes));
    if ((json_int_t)bytes != json_integer_value(size))
        err = sp_error(EINVAL, "%s: damaged: it has %llu bytes, %lld were saved; %s", path,
                       (unsigned long long)bytes, (long long)json_integer_value(size), c->remedy);
    else if (parts)
        err = check_parts(c, fileno(f), path, parts, bytes);
    else
        err = compare_part(c, fileno(f), path, &(struct saved_part){NULL, 0, bytes, hash});
    fclose(f);
    return err;
}

static int verify_files(struct check *c, const char *const *names)
{
    const struct sp_dir *dir = c->dir;
    json_t *root, *files, *sums;
    char path[4400];
    const char *name;
    struct stat st;
    char *text;
    size_t bytes;
    int err;

    snprintf(path, sizeof path, "%s/" SP_CHECKSUMS_FILE, dir->path);
    if (!sp_dir_has(dir, SP_CHECKSUMS_FILE, &st) && errno == ENOENT)
        return -ENOENT;
    err =
        sp_input_read_in(dir, SP_CHECKSUMS_FILE, MOST_BYTES, "a file of checksums", &text, &bytes);
    if (err)
        return err;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    files = json_object_get(root, "files");
    sums = json_object_get(root, "algorithm");
    if (!json_is_object(files) || !json_is_string(sums) ||
        strcmp(json_string_value(sums), ALGORITHM))
        err = sp_error(EINVAL, "%s: damaged: no checksums of " ALGORITHM, path);
    for (; !err && *names; names++)
        if (!json_object_get(files, *names))
            err = sp_error(EINVAL, "%s: damaged: no checksum of %s", path, *names);
    if (!err)
        json_object_foreach(files, name, sums)
        {
            if (!err && (!c->wanted || c->wanted(name)))
                err = check_file(c, name, sums);
        }
    json_decref(root);
    return err == -ENOENT ? -EINVAL : err; /* of a file that checksums.json names */
}

int sp_checksums_verify(const struct sp_dir *dir, const char *const *names, int share, int shares)
{
    struct check c = {
        .dir = dir, .remedy = "take another checkpoint", .share = share, .shares = shares};

    return verify_files(&c, names);
}

static bool is_of_model(const char *name)
{
    return !strcmp(name, "config.json") || sp_weights_is_file(name);
}

int sp_checksums_verify_model(const struct sp_dir *dir, int share, int shares)
{
    static const char *const none[] = {NULL};
    struct check c = {.dir = dir,
                      .wanted = is_of_model,
                      .remedy = "take another copy, or remove " SP_CHECKSUMS_FILE
                                " beside it if it was changed on purpose",
                      .share = share,
                      .shares = shares};

    return verify_files(&c, none);
}
