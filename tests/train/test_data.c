/* Samples of a token file: the sequential rule with its wrap, shuffling, headers, files that are refused or
 * change while they are read. */
#include "model/support.h"
#include "model/data.h"
#include <errno.h>
#include <pthread.h>
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
    unsigned char *bytes = malloc(n * (size_t)width);

    must(bytes != NULL, "malloc");
    for (size_t t = 0; t < n; t++)
        for (int b = 0; b < width; b++)
            bytes[(size_t)width * t + (size_t)b] = (unsigned char)(token(t, limit) >> 8 * b);
    write_file(scratch_path(dir, "tokens", path), bytes, n * (size_t)width);
    free(bytes);
    return path;
}

/* tokens[n*S .. n*S+S], wrapping at the end of the file. */
static void test_sequential(void **state)
{
    static const size_t files[] = {1, 2, 5, 16, 17, 100, 257};
    static const int limits[] = {[1] = 251, [2] = 50021, [4] = 128009};
    static const int seqs[] = {1, 2, 5, 16, 17, 33, 300};
    int checked = 0;

    (void)state;
    for (int width = 1; width <= 4; width *= 2)
        for (size_t f = 0; f < 7; f++)
            for (size_t k = 0; k < 7; k++) {
                int S = seqs[k], limit = limits[width];
                struct sp_data d;
                int32_t in[300], out[300];

                assert_int_equal(sp_data_open(token_file(files[f], width, limit), width, limit, &d),
                                 0);
                assert_int_equal(d.tokens, files[f]);
                for (uint64_t n = 0; n < 40; n++) {
                    assert_int_equal(sp_data_sample(&d, n, S, in, out), 0);
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
    assert_int_equal(sp_data_sample(&d, n, 5, in, out), 0);
    for (int t = 0; t < 5; t++)
        assert_int_equal(in[t], token((size_t)((n % 103 * 5 + (uint64_t)t) % 103), 251));
    /* One of the two alone. */
    memset(in, 0, sizeof in);
    assert_int_equal(sp_data_sample(&d, 7, 5, in, NULL), 0);
    assert_int_equal(in[4], token(39, 251));
    assert_int_equal(sp_data_sample(&d, 7, 5, NULL, out), 0);
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

        assert_int_equal(sp_data_sample(&d, n, 9, in, out), 0);
        assert_int_equal(sp_data_sample(&d, n, 9, again, NULL), 0);
        assert_memory_equal(in, again, sizeof in);
        assert_int_equal(sp_data_sample(&e, n, 9, other, NULL), 0);
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
        {"large token of 4 bytes", "\x01\x00\x00\x00\x01\x00\x00\x80", 8, 4, 2, -EINVAL,
         "token 1 is 2147483649, the model's vocabulary is 2"},
        {"6 bytes", "\x01\x00\x00\x00\x01\x00", 6, 4, 9, -EINVAL,
         "6 bytes: not a whole number of 4-byte tokens"},
        {"last of 4 bytes", "\x00\x00\x02\x00", 4, 4, 131073, 0, NULL},
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

/* A file with llm.c's header and `bytes` bytes of tokens t -> t. */
static const char *headed_file(uint32_t magic, uint32_t version, uint32_t tokens, int width,
                               size_t bytes)
{
    unsigned char file[2048] = {0};
    const uint32_t word[] = {magic, version, tokens};

    for (int i = 0; i < 12; i++)
        file[i] = (unsigned char)(word[i / 4] >> 8 * (i % 4));
    for (size_t t = 0; t < bytes / (size_t)width; t++)
        file[1024 + t * (size_t)width] = (unsigned char)t;
    write_file(scratch_path(dir, "headed", path), file, 1024 + bytes);
    return path;
}

static void test_headers(void **state)
{
    enum { GPT2 = 20240520, LLAMA3 = 20240801 };
    static const struct {
        uint32_t magic, version, tokens;
        int width, bytes, asked;
        const char *said;
    } table[] = {
        {GPT2, 1, 100, 2, 200, 0, NULL},
        {GPT2, 1, 100, 2, 200, 2, NULL},
        {LLAMA3, 7, 100, 4, 400, 0, NULL},
        {LLAMA3, 7, 100, 4, 400, 4, NULL},
        {GPT2, 1, 100, 2, 200, 4, "(llm.c for GPT-2) a token has 2 bytes, not 4"},
        {LLAMA3, 7, 100, 4, 400, 2, "(llm.c for Llama 3) a token has 4 bytes, not 2"},
        {GPT2, 2, 100, 2, 200, 0, "GPT-2, of version 2; 1 is known"},
        {LLAMA3, 1, 100, 4, 400, 0, "Llama 3, of version 1; 7 is known"},
        {GPT2, 1, 101, 2, 200, 0,
         "101 tokens of 2 bytes, which makes 1226 bytes in all; it has 1224"},
        {GPT2, 1, 99, 2, 200, 0, "which makes 1222 bytes in all; it has 1224"},
        {GPT2, 1, 100, 2, 201, 0, "which makes 1224 bytes in all; it has 1225"},
        {LLAMA3, 7, UINT32_MAX, 4, 400, 0, "which makes 17179870204 bytes in all"},
        {GPT2, 1, 0, 2, 0, 0, "is empty"},
    };
    struct capture c;
    struct sp_data d;
    int32_t in[3];

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *said = table[i].said;
        int ret;

        headed_file(table[i].magic, table[i].version, table[i].tokens, table[i].width,
                    (size_t)table[i].bytes);
        capture_begin(&c);
        ret = sp_data_open(path, table[i].asked, 100, &d);
        capture_end(&c);
        assert_int_equal(ret, said ? -EINVAL : 0);
        if (said) {
            assert_said(c.text, said, said);
            continue;
        }
        assert_int_equal(d.tokens, 100);
        assert_int_equal(d.width, table[i].width);
        assert_int_equal(sp_data_sample(&d, 33, 3, in, NULL), 0);
        assert_true(in[0] == 99 && in[1] == 0 && in[2] == 1);
        sp_data_close(&d);
    }
    /* As text a header is text; too short for one, and of another magic, it is tokens. */
    assert_int_equal(sp_data_open(headed_file(GPT2, 1, 5, 2, 10), 1, 256, &d), 0);
    assert_int_equal(d.tokens, 1034);
    sp_data_close(&d);
    must(!truncate(path, 10), "truncate");
    assert_int_equal(sp_data_open(path, 0, 65536, &d), 0);
    assert_int_equal(d.tokens, 5);
    sp_data_close(&d);
    assert_int_equal(sp_data_open(headed_file(GPT2 + 1, 1, 5, 2, 10), 0, 65536, &d), 0);
    assert_int_equal(d.tokens, 517);
    sp_data_close(&d);
    must(!truncate(headed_file(GPT2, 1, 5, 2, 10), 1000), "truncate");
    capture_begin(&c);
    assert_int_equal(sp_data_open(path, 0, 65536, &d), -EINVAL);
    assert_said(capture_end(&c), "makes 1034 bytes in all; it has 1000", "cut header");
    unlink(path);
}

/* Under a run a file may shrink, or be written anew. */
static void test_changes(void **state)
{
    struct capture c;
    struct sp_data d;
    int32_t in[40], out[40];

    (void)state;
    assert_int_equal(sp_data_open(token_file(5000, 2, 50000), 2, 50000, &d), 0);
    must(!truncate(path, 4001), "truncate");
    assert_int_equal(sp_data_sample(&d, 48, 40, in, out), 0); /* tokens 1920 to 1960 */
    capture_begin(&c);
    assert_int_equal(sp_data_sample(&d, 50, 40, in, out), -EIO);
    assert_said(capture_end(&c), "tokens: ends at byte 4001, it had 10000 when it was opened",
                "truncated");
    capture_begin(&c);
    assert_int_equal(sp_data_sample(&d, 100, 40, in, out), -EIO);
    assert_said(capture_end(&c), "ends at byte 4001, it had 10000", "far behind the end");
    token_file(5000, 2, 65000);
    capture_begin(&c);
    assert_int_equal(sp_data_sample(&d, 0, 40, in, out), 0);
    assert_int_equal(sp_data_sample(&d, 2, 40, in, out), -EINVAL);
    assert_said(capture_end(&c), "now, the model's vocabulary is 50000: it was changed", "changed");
    sp_data_close(&d);
    unlink(path);
}

static void *sample_much(void *arg)
{
    const struct sp_data *d = arg;
    intptr_t wrong = 0;
    int32_t in[5000];

    for (uint64_t n = 0; n < 300; n++) {
        wrong += sp_data_sample(d, n, 5000, in, NULL) != 0;
        for (size_t t = 0; t < 5000; t++)
            wrong += in[t] != token((n * 5000 + t) % 30011, 50000);
    }
    return (void *)wrong;
}

static void test_threads(void **state)
{
    pthread_t thread[4];
    struct sp_data d;

    (void)state;
    assert_int_equal(sp_data_open(token_file(30011, 2, 50000), 2, 50000, &d), 0);
    for (int i = 0; i < 4; i++)
        must(!pthread_create(&thread[i], NULL, sample_much, &d), "thread");
    for (int i = 0; i < 4; i++) {
        void *wrong;

        pthread_join(thread[i], &wrong);
        assert_null(wrong);
    }
    sp_data_close(&d);
    unlink(path);
}

TEST_GROUP(data)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential), cmocka_unit_test(test_late_samples),
        cmocka_unit_test(test_shuffled),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_a_file), cmocka_unit_test(test_headers),
        cmocka_unit_test(test_changes),    cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
