/* Writing safetensors: what is written is read; what is interrupted leaves the old file. */
#include "support.h"
#include "model/files/safetensors.h"
#include <errno.h>
#include <math.h>
#include <sys/wait.h>

static float value(size_t i)
{
    return (float)sin(1.0 + (double)i) * 3.0f;
}

static void fill(float *x, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value(from + i);
}

SCRATCH_TEST(round_trip)
{
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[8];
    } tensors[] = {{"a.weight", 2, {13, 7}},
                   {"scalar", 0, {0}},
                   {"empty", 2, {5, 0}},
                   {"quote \" backslash \\ \xc3\xa9", 1, {3}},
                   {"deep", 8, {1, 2, 1, 3, 1, 2, 1, 5}},
                   {"long", 1, {150001}}};
    const int n = (int)(sizeof tensors / sizeof tensors[0]);
    const char *path = in_scratch("model.safetensors");
    size_t total = 0, at = 0;
    struct sp_st_writer *w;
    struct sp_st_file st;
    float *x, *y;

    assert_int_equal(sp_st_writer_create_in(NULL, path, 0, &w), 0);
    for (int i = 0; i < n; i++) {
        size_t count = 1;

        for (int d = 0; d < tensors[i].ndim; d++)
            count *= (size_t)tensors[i].shape[d];
        total += count;
        assert_int_equal(
            sp_st_writer_declare(w, tensors[i].name, tensors[i].ndim, tensors[i].shape), 0);
    }
    x = malloc(total * sizeof *x);
    y = malloc(total * sizeof *y);
    must(x && y, "malloc");
    fill(x, total, 0);
    for (size_t piece = 1; at < total; at += piece, piece = piece * 3 + 1) {
        if (piece > total - at)
            piece = total - at;
        assert_int_equal(sp_st_writer_data(w, x + at, piece), 0);
    }
    assert_true(access(path, F_OK) != 0); /* not before it is finished */
    assert_int_equal(sp_st_writer_finish(w), 0);
    assert_int_equal(files_in(scratch), 1);

    assert_int_equal(sp_st_open(path, &st), 0);
    assert_int_equal(st.n, n);
    assert_true(st.shards[0].data_start % 8 == 0);
    at = 0;
    for (int i = 0; i < n; i++) {
        const struct sp_st_entry *e = sp_st_find(&st, tensors[i].name);
        size_t count;

        assert_non_null(e);
        assert_string_equal(e->dtype, "F32");
        assert_int_equal(e->ndim, tensors[i].ndim);
        for (int d = 0; d < e->ndim; d++)
            assert_true(e->shape[d] == tensors[i].shape[d]);
        count = (e->end - e->begin) / 4;
        assert_int_equal(sp_st_read(&st, e, y), 0);
        assert_memory_equal(y, x + at, count * sizeof *y);
        if (count > 2) {
            assert_int_equal(sp_st_read_part(&st, e, 1, count - 2, y), 0);
            assert_memory_equal(y, x + at + 1, (count - 2) * sizeof *y);
        }
        at += count;
    }
    assert_null(sp_st_find(&st, "absent"));
    sp_st_close(&st);
    printf("%d tensors, %zu elements\n", n, total);
    free(x);
    free(y);
}

/* A writer of tensor t(n, n of a row), `elements` of them written, from value(from) on in each row. */
static struct sp_st_writer *begin(const char *path, const int64_t shape[2], size_t elements,
                                  size_t from)
{
    size_t row = (size_t)shape[1];
    struct sp_st_writer *w;
    float x[1000];

    fill(x, row, from);
    assert_int_equal(sp_st_writer_create_in(NULL, path, 0, &w), 0);
    assert_int_equal(sp_st_writer_declare(w, "t", 2, shape), 0);
    for (size_t at = 0; at < elements; at += row)
        assert_int_equal(sp_st_writer_data(w, x, row), 0);
    return w;
}

/* A good file with tensor t = value(0 .. 4) stands at `path`. */
static void make_old(const char *path)
{
    assert_int_equal(sp_st_writer_finish(begin(path, (int64_t[]){1, 5}, 5, 0)), 0);
}

static void assert_old(const char *path)
{
    struct sp_st_file st;
    float x[5], y[5];

    fill(x, 5, 0);
    assert_int_equal(sp_st_open(path, &st), 0);
    assert_int_equal(st.n, 1);
    assert_int_equal(sp_st_read(&st, &st.entries[0], y), 0);
    assert_memory_equal(x, y, sizeof x);
    sp_st_close(&st);
}

/* A writer of 300000 elements, `elements` of them written. */
static struct sp_st_writer *begin_new(const char *path, size_t elements)
{
    return begin(path, (int64_t[]){300, 1000}, elements, 9);
}

SCRATCH_TEST(interrupted_save_keeps_the_old_file)
{
    const char *path = in_scratch("model.safetensors");
    struct sp_st_writer *w;
    rlim_t before;
    struct capture c;
    float x[1000];
    int status = 0, rc = 0;
    pid_t child;

    make_old(path);

    sp_st_writer_abort(begin_new(path, 150000));
    assert_old(path);
    assert_int_equal(files_in(scratch), 1);

    w = begin_new(path, 299000); /* one row short */
    assert_says(&c, sp_st_writer_finish(w), -EINVAL,
                "1196000 bytes of data written, 1200000 declared", "short");
    assert_old(path);
    assert_int_equal(files_in(scratch), 1);

    /* the file cannot grow past 64 KiB, as on a full disk */
    capture_begin(&c); /* before the limit: its file grows too */
    before = limit_files(64 << 10);
    w = begin_new(path, 0);
    fill(x, 1000, 9);
    for (int i = 0; i < 300 && !rc; i++)
        rc = sp_st_writer_data(w, x, 1000);
    assert_int_equal(sp_st_writer_data(w, x, 1000), rc); /* said once */
    assert_int_equal(sp_st_writer_finish(w), rc);
    limit_files(before);
    assert_said(capture_end(&c), "cannot be written: File too large", "full disk");
    assert_int_equal(rc, -EFBIG);
    assert_old(path);
    assert_int_equal(files_in(scratch), 1);

    /* the same where only the last flush fails: all of it fits the stream's buffer */
    w = begin(path, (int64_t[]){1, 1}, 1, 0);
    capture_begin(&c);
    limit_files(16);
    rc = sp_st_writer_finish(w);
    limit_files(before);
    capture_end(&c); /* stderr is a file here and may be cut by the limit too */
    assert_int_equal(rc, -EFBIG);
    assert_old(path);
    assert_int_equal(files_in(scratch), 1);

    child = fork();
    if (child == 0) {
        w = begin_new(path, 200000);
        raise(SIGKILL);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_old(path);
    assert_int_equal(files_in(scratch), 2); /* what the dead process had begun */

    make_old(path); /* and it bars no later save */
    assert_old(path);
    assert_int_equal(sp_st_writer_finish(begin_new(path, 300000)), 0);
    scratch_empty(scratch);
    assert_int_equal(files_in(scratch), 0);
}

SCRATCH_TEST(misuse_of_the_writer)
{
    const int64_t shape[2] = {2, 3}, negative[1] = {-1}, huge[2] = {INT64_MAX, 4};
    const char *path = in_scratch("a.safetensors");
    const float x[7] = {0};
    struct sp_st_writer *w;
    struct capture c;

#define REFUSED(CALL, WORD)                                                                        \
    assert_int_equal(sp_st_writer_create_in(NULL, path, 0, &w), 0);                                \
    assert_int_equal(sp_st_writer_declare(w, "t", 2, shape), 0);                                   \
    capture_begin(&c);                                                                             \
    assert_int_equal(CALL, -EINVAL);                                                               \
    assert_int_equal(sp_st_writer_finish(w), -EINVAL);                                             \
    assert_said(capture_end(&c), WORD, #CALL)
    REFUSED(sp_st_writer_declare(w, "t", 2, shape), "declared twice");
    REFUSED(sp_st_writer_declare(w, "__metadata__", 2, shape), "declared twice");
    REFUSED(sp_st_writer_declare(w, "u", 1, negative), "dimension 0 of tensor u is -1");
    REFUSED(sp_st_writer_declare(w, "u", 2, huge), "dimension 0 of tensor u");
    REFUSED(sp_st_writer_declare(w, "\xff", 2, shape), "UTF-8");
    REFUSED(sp_st_writer_data(w, x, 7), "28 bytes of data after 0 of 24");
    REFUSED((sp_st_writer_data(w, x, 6), sp_st_writer_data(w, x, 1)), "after 24 of 24");
    REFUSED((sp_st_writer_data(w, x, 6), sp_st_writer_declare(w, "u", 2, shape)), "after the data");
#undef REFUSED
    assert_says(&c, sp_st_writer_create_in(NULL, "/nonexistent-directory/a", 0, &w), -ENOENT,
                "cannot be created", "no directory");
    assert_says(&c, sp_st_writer_create_in(NULL, scratch, 0, &w), -EINVAL, "not a regular file",
                "a directory");
    assert_int_equal(files_in(scratch), 0);
}

/* Longer than the piece that is read at a time; the last element counts. */
SCRATCH_TEST(equal_tensors)
{
    enum { N = 70001 };
    const int64_t n = N, other = N - 1;
    const char *path = in_scratch("a.safetensors");
    float *x = malloc(N * sizeof *x);
    struct sp_st_writer *w;
    struct sp_st_file st;
    bool same;

    must(x != NULL, "malloc");
    fill(x, N, 0);
    assert_int_equal(sp_st_writer_create_in(NULL, path, 0, &w), 0);
    assert_int_equal(sp_st_writer_declare(w, "a", 1, &n), 0);
    assert_int_equal(sp_st_writer_declare(w, "b", 1, &n), 0);
    assert_int_equal(sp_st_writer_declare(w, "c", 1, &n), 0);
    assert_int_equal(sp_st_writer_declare(w, "d", 1, &other), 0);
    assert_int_equal(sp_st_writer_data(w, x, N), 0);
    assert_int_equal(sp_st_writer_data(w, x, N), 0);
    x[N - 1] = -x[N - 1];
    assert_int_equal(sp_st_writer_data(w, x, N), 0);
    assert_int_equal(sp_st_writer_data(w, x, N - 1), 0);
    assert_int_equal(sp_st_writer_finish(w), 0);
    assert_int_equal(sp_st_open(path, &st), 0);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(sp_st_same(&st, &st.entries[0], &st.entries[i], &same), 0);
        assert_int_equal(same, i == 1);
    }
    sp_st_close(&st);
    free(x);
}
