/*
 * Tensors in shards with an index: what is written is read; an index and shards that do not say the
 * same of every tensor are refused, and nothing outside the directory is opened.
 */
#include "quotes.h"
#include "support.h"
#include "model/files/safetensors.h"
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>

/* ---- writing ----------------------------------------------------------------------------- */

/* Elements of tensors t0, t1, ...; element i of all of them is i. */
static const int64_t sizes[] = {3, 5, 0, 40, 1, 1, 1, 8, 0};
enum { TENSORS = sizeof sizes / sizeof sizes[0], ELEMENTS = 59 };

static struct sp_st_writer *declared(const char *path, uint64_t limit)
{
    struct sp_st_writer *w;

    assert_int_equal(sp_st_writer_create_in(NULL, path, limit, &w), 0);
    for (int i = 0; i < TENSORS; i++) {
        char name[8];

        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(sp_st_writer_declare(w, name, 1, &sizes[i]), 0);
    }
    return w;
}

static void stream(struct sp_st_writer *w, size_t elements, size_t piece)
{
    float x[ELEMENTS];

    for (size_t i = 0; i < ELEMENTS; i++)
        x[i] = (float)i;
    for (size_t at = 0; at < elements; at += piece) {
        size_t n = elements - at < piece ? elements - at : piece;

        assert_int_equal(sp_st_writer_data(w, x + at, n), 0);
    }
}

/* The shard of each tensor, and its values. */
static void check_set(const struct sp_st_file *st, const char *shards)
{
    float x[ELEMENTS];
    int at = 0;

    assert_int_equal(st->n, TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const struct sp_st_entry *e;
        char name[8], file[64];

        snprintf(name, sizeof name, "t%d", i);
        e = sp_st_find(st, name);
        assert_non_null(e);
        snprintf(file, sizeof file, "/model-%05d-of-%05d.safetensors", shards[i] - '0',
                 st->n_shards);
        assert_non_null(strstr(sp_st_path(st, e), file));
        assert_int_equal(sp_st_read(st, e, x), 0);
        for (int k = 0; k < sizes[i]; k++)
            assert_true(x[k] == (float)(at + k));
        at += (int)sizes[i];
    }
}

/* A tensor is never divided, the limit is kept where no tensor is larger, and no shard is empty. */
SCRATCH_TEST(round_trip)
{
    static const struct {
        uint64_t limit;
        const char *shards; /* of each tensor */
        int n;
    } cases[] = {{4, "122345677", 7},
                 {32, "111233344", 4},
                 {160, "111233333", 3},
                 {192, "111122222", 2},
                 {235, "111111122", 2}};
    const char *path = in_scratch("model.safetensors");
    const char *index = in_scratch("model.safetensors.index.json");

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece <= ELEMENTS; piece = piece * 3 + 1) {
            struct sp_st_writer *w = declared(path, cases[i].limit);
            struct sp_st_file st;
            json_t *root;

            stream(w, ELEMENTS, piece);
            assert_true(access(index, F_OK)); /* not before it is finished */
            assert_int_equal(sp_st_writer_finish(w), 0);
            assert_int_equal(files_in(scratch), cases[i].n + 1);
            root = json_load_file(index, 0, NULL);
            assert_int_equal(json_integer_value(
                                 json_object_get(json_object_get(root, "metadata"), "total_size")),
                             ELEMENTS * 4);
            json_decref(root);
            assert_int_equal(sp_st_open_index(index, &st), 0);
            assert_int_equal(st.n_shards, cases[i].n);
            check_set(&st, cases[i].shards);
            sp_st_close(&st);
            scratch_empty(scratch);
        }
        printf("at most %llu bytes: shards %s\n", (unsigned long long)cases[i].limit,
               cases[i].shards);
    }
    for (uint64_t limit = 0; limit <= ELEMENTS * 4; limit += ELEMENTS * 4) { /* one file */
        struct sp_st_writer *w = declared(path, limit);

        stream(w, ELEMENTS, 7);
        assert_int_equal(sp_st_writer_finish(w), 0);
        assert_int_equal(files_in(scratch), 1);
        scratch_empty(scratch);
    }
}

SCRATCH_TEST(interrupted_writing_leaves_no_model)
{
    const char *path = in_scratch("model.safetensors");
    const char *index = in_scratch("model.safetensors.index.json");
    struct sp_st_writer *w;
    rlim_t before;
    struct capture c;

    w = declared(path, 32);
    stream(w, 50, 50); /* into the third shard */
    sp_st_writer_abort(w);
    assert_int_equal(files_in(scratch), 0);

    w = declared(path, 32);
    stream(w, 50, 50);
    assert_says(&c, sp_st_writer_finish(w), -EINVAL, "200 bytes of data written, 236 declared",
                "short");
    assert_int_equal(files_in(scratch), 0);

    /* the index is larger than any shard, and the disk full */
    w = declared(path, 32);
    stream(w, ELEMENTS, 9);
    capture_begin(&c);
    before = limit_files(400);
    assert_int_equal(sp_st_writer_finish(w), -EFBIG);
    limit_files(before);
    assert_said(capture_end(&c), "index.json: cannot be written: File too large", "full disk");
    assert_int_equal(files_in(scratch), 0);

    /* a model that is there is not replaced file by file */
    for (int i = 0; i < 2; i++) {
        const char *there = i ? index : path;

        write_file(there, "old", 3);
        w = declared(path, 32);
        assert_says(&c, sp_st_writer_finish(w), -EEXIST, there, "a model there");
        assert_int_equal(files_in(scratch), 1);
        unlink(there);
    }
}

/* ---- reading ----------------------------------------------------------------------------- */

/* A file of one or two scalars. */
static void craft(const char *name, const char *a, const char *b)
{
    const float x[2] = {1, 2};
    struct sp_st_writer *w;

    assert_int_equal(sp_st_writer_create_in(NULL, in_scratch(name), 0, &w), 0);
    assert_int_equal(sp_st_writer_declare(w, a, 0, NULL), 0);
    if (b)
        assert_int_equal(sp_st_writer_declare(w, b, 0, NULL), 0);
    assert_int_equal(sp_st_writer_data(w, x, b ? 2 : 1), 0);
    assert_int_equal(sp_st_writer_finish(w), 0);
}

#define MAP(TEXT) "{'metadata': {}, 'weight_map': {" TEXT "}}"

/* "one" holds a and b, "two" holds c, "again" holds c too; "pipe", "dir", "gone", "cut". */
static const struct {
    const char *json, *word; /* NULL: accepted */
} indexes[] = {
    {MAP("'a':'one','b':'one','c':'two'"), NULL},
    {MAP("'c':'two','b':'one','a':'one'"), NULL},
    {"{'weight_map': {'c':'link'}}", NULL},
    {"", "JSON"},
    {"[]", "no weight_map"},
    {"{}", "no weight_map"},
    {"{'weight_map': []}", "no weight_map"},
    {"{'weight_map': {}}", "names no tensor"},
    {"{'weight_map': {'a':'one'}, 'weight_map': {}}", "JSON"},
    {MAP("'c':'two','c':'two'"), "JSON"},
    {MAP("'c':3"), "tensor c: its file is no text"},
    {MAP("'c':null"), "tensor c: its file is no text"},
    {MAP("'':'two'"), "without a name"},
    {MAP("'c\\n':'two'"), "control character"},
    {MAP("'c\\u0000':'two'"), "JSON"},
    {MAP("'c':''"), "tensor c is said to be in '', no name"},
    {MAP("'c':'.'"), "in '.', no name of a file here"},
    {MAP("'c':'..'"), "in '..', no name of a file here"},
    {MAP("'c':'./two'"), "in './two', no name of a file here"},
    {MAP("'c':'../x/two'"), "in '../x/two', no name of a file here"},
    {MAP("'c':'/etc/passwd'"), "in '/etc/passwd', no name of a file here"},
    {MAP("'c':'two\\n'"), "in 'two\\x0a', no name of a file here"},
    {MAP("'a':'one','b':'one'"), NULL}, /* two is not named: not read */
    {MAP("'a':'one','c':'two'"), "tensor b of one is not in the index"},
    {MAP("'a':'one','b':'two','c':'two'"), "tensor b is in one, the index says in two"},
    {MAP("'a':'one','b':'one','c':'one'"), "tensor c is not in one, where the index"},
    {MAP("'a':'one','b':'one','c':'two','d':'two'"), "tensor d is not in two"},
    {MAP("'c':'two','d':'again'"), "tensor c is in again, the index says in two"},
    {MAP("'c':'gone'"), "tensor c is said to be in gone: No such file"},
    {MAP("'c':'dangling'"), "tensor c is said to be in dangling: No such file"},
    {MAP("'c':'pipe'"), "pipe: not a regular file"},
    {MAP("'c':'dir'"), "dir: not a regular file"},
    {MAP("'c':'cut'"), "cut: "},
    {MAP("'c':'index'"), "index: "},
};

SCRATCH_TEST(indexes_are_checked)
{
    const char *path = in_scratch("index");
    int accepted = 0, refused = 0;

    craft("one", "a", "b");
    craft("two", "c", NULL);
    craft("again", "c", NULL);
    put_text("cut", "12345678{");
    must(!symlink("two", in_scratch("link")), "symlink");
    must(!symlink("gone", in_scratch("dangling")), "symlink");
    must(!mkfifo(in_scratch("pipe"), 0644), "mkfifo");
    must(!mkdir(in_scratch("dir"), 0755), "mkdir");
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        struct sp_st_file st = {0};
        struct capture c;
        int rc;

        put_text("index", json_text(indexes[i].json));
        rc = CAPTURED(&c, sp_st_open_index(path, &st));
        if (!indexes[i].word) {
            if (rc)
                fail_msg("%s: %s", indexes[i].json, c.text);
            sp_st_close(&st);
            accepted++;
            continue;
        }
        assert_true(rc < 0 && !st.n_shards && !st.path);
        assert_said(c.text, indexes[i].word, indexes[i].json);
        assert_non_null(strstr(c.text, scratch));
        refused++;
    }
    printf("%d indexes accepted, %d refused\n", accepted, refused);
}

/* An index that is a pipe, one of 17 MiB, and one of 4097 shards that are not even looked for. */
SCRATCH_TEST(no_index)
{
    const char *path = in_scratch("index");
    char *json = malloc(200000);
    struct sp_st_file st;
    struct capture c;
    size_t n;

    must(json != NULL, "malloc");
    must(!mkfifo(path, 0644), "mkfifo");
    assert_says(&c, sp_st_open_index(path, &st), -EINVAL, "index: not a regular file", "pipe");
    unlink(path);
    write_file(path, "{", 1);
    must(!truncate(path, 17 << 20), "truncate");
    assert_says(&c, sp_st_open_index(path, &st), -EINVAL, "an index has at most 16777216", "huge");
    n = (size_t)sprintf(json, "{\"weight_map\":{");
    for (int i = 0; i < 4097; i++)
        n += (size_t)sprintf(json + n, "%s\"t%d\":\"s%d\"", i ? "," : "", i, i);
    n += (size_t)sprintf(json + n, "}}");
    write_file(path, json, n);
    assert_says(&c, sp_st_open_index(path, &st), -EINVAL, "index: more than 4096 shards", "many");
    free(json);
}
