/* Samples of a token file: the sequential rule with its wrap, shuffling, files that are refused. */
#include "model/support.h"
#include "model/data.h"
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

static char *dir;
static char path[4200];

static int make_dir(void **state)
{
    (void)state;
    dir = scratch_make();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    rmdir(dir);
    free(dir);
    return 0;
}

/* n tokens that differ from their neighbours: t -> (7 t^2 + 3 t + 1) mod limit. */
static int32_t token(size_t t, int limit)
{
    return (int32_t)((7 * t * t + 3 * t + 1) % (size_t)limit);
}

static const char *token_file(size_t n, int width, int limit)
{
    unsigned char *bytes = malloc(n * 2);

    must(bytes != NULL, "malloc");
    for (size_t t = 0; t < n; t++) {
        bytes[(size_t)width * t] = (unsigned char)token(t, limit);
        if (width == 2)
            bytes[2 * t + 1] = (unsigned char)(token(t, limit) >> 8);
    }
    write_file(scratch_path(dir, "tokens", path), bytes, n * (size_t)width);
    free(bytes);
    return path;
}

/* tokens[n*S .. n*S+S], wrapping at the end of the file. */
static void test_sequential(void **state)
{
    static const size_t files[] = {1, 2, 5, 16, 17, 100, 257};
    static const int seqs[] = {1, 2, 5, 16, 17, 33, 300};
    int checked = 0;

    (void)state;
    for (int width = 1; width <= 2; width++)
        for (size_t f = 0; f < 7; f++)
            for (size_t k = 0; k < 7; k++) {
                int S = seqs[k], limit = width == 1 ? 251 : 50021;
                struct sp_data d;
                int32_t in[300], out[300];

                assert_int_equal(sp_data_open(token_file(files[f], width, limit), width, limit, &d),
                                 0);
                assert_int_equal(d.tokens, files[f]);
                for (uint64_t n = 0; n < 40; n++) {
                    sp_data_sample(&d, n, S, in, out);
                    for (int t = 0; t < S; t++) {
                        uint64_t at = n * (uint64_t)S + (uint64_t)t;

                        assert_int_equal(in[t], token(at % files[f], limit));
                        assert_int_equal(out[t], token((at + 1) % files[f], limit));
                        checked++;
                    }
                }
                sp_data_close(&d);
                unlink(path);
            }
    printf("[          ] %d tokens where the rule says\n", checked);
}

/* Late samples: n*S does not fit 64 bits, its remainder does. */
static void test_late_samples(void **state)
{
    struct sp_data d;
    int32_t in[5], out[5];
    uint64_t n = UINT64_MAX - 3;

    (void)state;
    assert_int_equal(sp_data_open(token_file(103, 1, 251), 1, 256, &d), 0);
    sp_data_sample(&d, n, 5, in, out);
    for (int t = 0; t < 5; t++)
        assert_int_equal(in[t], token((size_t)((n % 103 * 5 + (uint64_t)t) % 103), 251));
    /* One of the two alone. */
    memset(in, 0, sizeof in);
    sp_data_sample(&d, 7, 5, in, NULL);
    assert_int_equal(in[4], token(39, 251));
    sp_data_sample(&d, 7, 5, NULL, out);
    assert_int_equal(out[4], token(40, 251));
    sp_data_close(&d);
    unlink(path);
}

static void test_shuffled(void **state)
{
    enum { TOKENS = 97, SAMPLES = 20000 };
    struct sp_data d, e;
    int hits[TOKENS] = {0}, least = SAMPLES, most = 0, differ = 0;

    (void)state;
    assert_int_equal(sp_data_open(token_file(TOKENS, 2, 60000), 2, 65536, &d), 0);
    d.shuffled = true;
    d.seed = 12;
    e = d;
    e.seed = 13;
    for (uint64_t n = 0; n < SAMPLES; n++) {
        int32_t in[9], out[9], again[9], other[9];
        size_t at = 0;

        sp_data_sample(&d, n, 9, in, out);
        sp_data_sample(&d, n, 9, again, NULL);
        assert_memory_equal(in, again, sizeof in);
        sp_data_sample(&e, n, 9, other, NULL);
        differ += memcmp(in, other, sizeof in) != 0;
        while (at < TOKENS && token(at, 60000) != in[0])
            at++;
        assert_true(at < TOKENS);
        for (size_t t = 0; t < 9; t++) {
            assert_int_equal(in[t], token((at + t) % TOKENS, 60000));
            assert_int_equal(out[t], token((at + t + 1) % TOKENS, 60000));
        }
        hits[at]++;
    }
    for (int i = 0; i < TOKENS; i++) {
        least = hits[i] < least ? hits[i] : least;
        most = hits[i] > most ? hits[i] : most;
    }
    /* 206 expected at each start, give or take 5 deviations of 14. */
    assert_true(least > 130 && most < 280);
    assert_true(differ > SAMPLES * 97 / 100);
    sp_data_close(&d);
    unlink(path);
    printf("[          ] starts hit %d to %d times, 206 expected\n", least, most);
}

static void test_refused(void **state)
{
    static const struct {
        const char *name, *bytes;
        int n, width, vocab, ret;
        const char *said;
    } table[] = {
        {"empty", "", 0, 1, 256, -EINVAL, "is empty"},
        {"odd", "abc", 3, 2, 65536, -EINVAL, "3 bytes: not a whole number of 2-byte tokens"},
        {"large byte", "ab\x7f", 3, 1, 127, -EINVAL,
         "token 2 is 127, the model's vocabulary is 127"},
        {"large token", "\x01\x00\x02\x00\x00\x01", 6, 2, 256, -EINVAL,
         "token 2 is 256, the model's vocabulary is 256"},
        {"last below", "ab\x7e", 3, 1, 127, 0, NULL},
        {"little-endian", "\x00\x01\xff\x00", 4, 2, 257, 0, NULL},
    };
    struct capture c;
    struct sp_data d;
    int ret;

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_file(scratch_path(dir, "bad", path), table[i].bytes, (size_t)table[i].n);
        memset(&d, 0xee, sizeof d);
        capture_begin(&c);
        ret = sp_data_open(path, table[i].width, table[i].vocab, &d);
        capture_end(&c);
        assert_int_equal(ret, table[i].ret);
        if (ret) {
            assert_said(c.text, table[i].said, table[i].name);
            assert_said(c.text, "/bad", table[i].name);
            assert_int_equal(*(unsigned char *)&d, 0xee); /* untouched */
        } else {
            assert_string_equal(c.text, "");
            sp_data_close(&d);
        }
        unlink(path);
    }
}

/* Not a file, not there, not readable, a pipe without a writer: said, and at once. */
static void test_not_a_file(void **state)
{
    struct capture c;
    struct sp_data d;
    int ret;

    (void)state;
    alarm(20);
    capture_begin(&c);
    ret = sp_data_open(dir, 1, 256, &d);
    assert_said(capture_end(&c), "is not a regular file", "directory");
    assert_int_equal(ret, -EINVAL);

    capture_begin(&c);
    ret = sp_data_open(scratch_path(dir, "nowhere", path), 1, 256, &d);
    assert_said(capture_end(&c), "No such file", "missing");
    assert_int_equal(ret, -ENOENT);

    must(!mkfifo(scratch_path(dir, "pipe", path), 0600), "mkfifo");
    capture_begin(&c);
    ret = sp_data_open(path, 1, 256, &d);
    assert_said(capture_end(&c), "is not a regular file", "pipe");
    assert_int_equal(ret, -EINVAL);
    unlink(path);

    if (geteuid()) { /* root reads everything */
        write_file(scratch_path(dir, "secret", path), "abc", 3);
        chmod(path, 0);
        capture_begin(&c);
        ret = sp_data_open(path, 1, 256, &d);
        assert_said(capture_end(&c), "Permission denied", "unreadable");
        assert_int_equal(ret, -EACCES);
        unlink(path);
    }
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential), cmocka_unit_test(test_late_samples),
        cmocka_unit_test(test_shuffled),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_a_file),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
