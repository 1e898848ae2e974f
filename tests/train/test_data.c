/* Samples of a token file: the sequential rule with its wrap, shuffling, headers, files that are refused or
 * change while they are read. */
#include "model/support.h"
#include "kernels/kernels.h"
#include "model/data.h"
#include <errno.h>
#include <fcntl.h>
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
TEST(test_sequential)
{
    static const size_t files[] = {1, 2, 5, 16, 17, 100, 257};
    static const int limits[] = {[1] = 251, [2] = 50021, [4] = 128009};
    static const int seqs[] = {1, 2, 5, 16, 17, 33, 300};
    int checked = 0;

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
TEST(test_late_samples)
{
    struct sp_data d;
    int32_t in[5], out[5];
    uint64_t n = UINT64_MAX - 3;

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

/* Every sample once a pass, each pass and seed in an order of its own; the origin is a place in that. */
TEST(test_shuffled)
{
    static const int sizes[] = {1, 8, 9, 17, 97, 9 * 64, 9 * 1000 + 3};
    enum { S = 9, PASSES = 3, MOST = 1000 };
    int same_order = 0, same_seed = 0, checked = 0;

    for (size_t f = 0; f < sizeof sizes / sizeof *sizes; f++) {
        uint64_t samples = sizes[f] < S ? 1 : (uint64_t)sizes[f] / S, before[MOST] = {0};
        struct sp_data d, e;

        assert_int_equal(sp_data_open(token_file((size_t)sizes[f], 2, 60000), 2, 65536, &d), 0);
        d.shuffled = true;
        d.seed = 12;
        e = d;
        e.seed = 13;
        assert_int_equal(sp_data_samples(&d, S), samples);
        for (uint64_t pass = 0; pass < PASSES; pass++) {
            bool seen[MOST] = {false};

            for (uint64_t i = 0; i < samples; i++) {
                uint64_t n = pass * samples + i, place = sp_data_place(&d, n, S);
                int32_t in[S], out[S];

                assert_true(place < samples && !seen[place]);
                seen[place] = true;
                assert_int_equal(sp_data_sample(&d, n, S, in, out), 0);
                for (size_t t = 0; t < S; t++) {
                    assert_int_equal(in[t], token((place * S + t) % (size_t)sizes[f], 60000));
                    assert_int_equal(out[t], token((place * S + t + 1) % (size_t)sizes[f], 60000));
                }
                same_order += pass && place == before[i];
                same_seed += place == sp_data_place(&e, n, S);
                before[i] = place;
                checked += samples > 1;
            }
        }
        e = d;
        e.origin = UINT64_MAX; /* one less, modulo 2^64 */
        assert_int_equal(sp_data_place(&e, samples + 1, S), sp_data_place(&d, samples, S));
        sp_data_close(&d);
    }
    unlink(path);
    printf("[          ] %d samples; %d at their place of the pass before, %d of another seed\n",
           checked, same_order, same_seed);
    assert_true(same_order < checked / 20 && same_seed < checked / 20);
}

/* Read once: each token but the first is a target once, and what is behind the last is padding. */
TEST(test_once)
{
    for (int tokens = 2; tokens < 40; tokens++)
        for (int S = 1; S < 12; S++) {
            int next = 1, padding = 0;
            struct sp_data d;

            assert_int_equal(sp_data_open(token_file((size_t)tokens, 1, 251), 1, 251, &d), 0);
            d.once = true;
            for (uint64_t n = 0; n < (uint64_t)(tokens / S + 4); n++) {
                int32_t in[12], out[12];

                assert_int_equal(sp_data_sample(&d, n, S, in, out), 0);
                for (int t = 0; t < S; t++) {
                    assert_true(in[t] >= 0 && in[t] < 251);
                    if (out[t] == SP_NO_TARGET) {
                        padding++;
                        continue;
                    }
                    assert_int_equal(padding, 0);
                    assert_int_equal(in[t], token((size_t)next - 1, 251));
                    assert_int_equal(out[t], token((size_t)next++, 251));
                }
            }
            assert_int_equal(next, tokens);
            sp_data_close(&d);
        }
    unlink(path);
}

TEST(test_refused)
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

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_file(scratch_path(dir, "bad", path), table[i].bytes, (size_t)table[i].n);
        memset(&d, 0xee, sizeof d);
        ret = CAPTURED(&c, sp_data_open(path, table[i].width, table[i].vocab, &d));
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
TEST(test_not_a_file)
{
    struct capture c;
    struct sp_data d;
    int ret;

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

TEST(test_headers)
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

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *said = table[i].said;
        int ret;

        headed_file(table[i].magic, table[i].version, table[i].tokens, table[i].width,
                    (size_t)table[i].bytes);
        ret = CAPTURED(&c, sp_data_open(path, table[i].asked, 100, &d));
        assert_int_equal(ret, said ? -EINVAL : 0);
        if (said) {
            assert_said(c.text, said, said);
            continue;
        }
        assert_int_equal(d.tokens, 100);
        assert_int_equal(d.file[0].width, table[i].width);
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
    assert_says(&c, sp_data_open(path, 0, 65536, &d), -EINVAL,
                "makes 1034 bytes in all; it has 1000", "cut header");
    unlink(path);
}

/* An array as numpy.save writes it, of tokens t -> t. */
static const char *npy_file(const char *dict, int version, int width, int tokens)
{
    unsigned char file[2048] = "\x93NUMPY";
    size_t start = version < 2 ? 10 : 12, length = 118;

    file[6] = (unsigned char)version;
    file[8] = (unsigned char)length;
    memset(file + start, ' ', length);
    memcpy(file + start, dict, strlen(dict));
    file[start + length - 1] = '\n';
    for (int t = 0; t < tokens; t++)
        file[start + length + (size_t)(t * width)] = (unsigned char)t;
    write_file(scratch_path(dir, "tokens.npy", path), file,
               start + length + (size_t)(tokens * width));
    return path;
}

#define NPY(descr, order, shape)                                                                   \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

TEST(test_numpy)
{
    static const struct {
        const char *dict;
        int version, width, tokens, asked;
        const char *said;
    } table[] = {
        {NPY("<u2", "False", "(100,)"), 1, 2, 100, 0, NULL},
        {NPY("<u2", "False", "(100,)"), 1, 2, 100, 2, NULL},
        {NPY("<i4", "True", "(100,)"), 2, 4, 100, 0, NULL},
        {NPY("<u4", "False", "(100,)"), 3, 4, 100, 4, NULL},
        {NPY("<i8", "False", "(100,)"), 1, 8, 100, 0, NULL},
        {NPY("|u1", "False", "(100,)"), 1, 1, 100, 0, NULL},
        {NPY("<u2", "False", "(4, 25)"), 1, 2, 100, 0, NULL},
        {NPY("<u2", "True", "(4, 25)"), 1, 2, 100, 0, "of a shape or an order that is not read"},
        {NPY("<u2", "False", "()"), 1, 2, 100, 0, "of a shape or an order"},
        {NPY("<u2", "False", "(-1,)"), 1, 2, 100, 0, "of a shape or an order"},
        {NPY(">u2", "False", "(100,)"), 1, 2, 100, 0, "a NumPy array of '>u2'; tokens are"},
        {NPY("<f4", "False", "(100,)"), 1, 4, 100, 0, "a NumPy array of '<f4'; tokens are"},
        {NPY("<u2", "False", "(101,)"), 1, 2, 100, 0, "(NumPy) it has 101 tokens of 2 bytes"},
        {NPY("<u2", "False", "(100,)"), 1, 2, 100, 4, NULL}, /* asked for those without a header */
        {NPY("<u2", "False", "(100,)"), 1, 2, 100, 1, "and no text: give it as --tokens"},
        {NPY("<u2", "False", "(100,)"), 9, 2, 100, 0, "a NumPy array, version 9"},
        {"{}", 1, 2, 100, 0, "a NumPy array of no 'descr'"},
    };
    struct capture c;
    struct sp_data d;
    int32_t in[3];

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int ret;

        npy_file(table[i].dict, table[i].version, table[i].width, table[i].tokens);
        ret = CAPTURED(&c, sp_data_open(path, table[i].asked, 100, &d));
        if (table[i].said) {
            assert_said(c.text, table[i].said, table[i].said);
            assert_int_equal(ret, -EINVAL);
            continue;
        }
        assert_string_equal(c.text, "");
        assert_int_equal(d.tokens, 100);
        assert_int_equal(sp_data_sample(&d, 33, 3, in, NULL), 0);
        assert_true(in[0] == 99 && in[1] == 0 && in[2] == 1);
        sp_data_close(&d);
    }
    /* a number of eight bytes is no small one */
    npy_file(NPY("<i8", "False", "(100,)"), 1, 8, 100);
    {
        int fd = open(path, O_WRONLY);

        must(fd >= 0 && pwrite(fd, "\1", 1, 10 + 118 + 8 * 7 + 5) == 1, "pwrite");
        close(fd);
    }
    assert_says(&c, sp_data_open(path, 0, 100, &d), -EINVAL, "token 7 is 4294967295", "large");
    unlink(path);
}

/* Shards, by names and by a pattern, whose samples run over their ends. */
TEST(test_several)
{
    static const int sizes[] = {7, 1, 30, 2};
    char names[5000] = "", pattern[4300], one[4300];
    struct capture c;
    struct sp_data d;
    int32_t in[11], out[11];

    for (int i = 0; i < 4; i++) {
        char name[32];

        snprintf(name, sizeof name, "shard_%d.bin", i);
        token_file(40, 2, 50000);
        must(!truncate(path, 2 * sizes[i]), "truncate");
        must(!rename(path, scratch_path(dir, name, one)), "rename");
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? "," : "", one);
    }
    snprintf(pattern, sizeof pattern, "%s/shard_*.bin", dir);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(sp_data_open(way ? pattern : names, 0, 50000, &d), 0);
        assert_int_equal(d.files, 4);
        assert_int_equal(d.tokens, 40);
        for (uint64_t n = 0; n < 20; n++) {
            assert_int_equal(sp_data_sample(&d, n, 11, in, out), 0);
            for (size_t t = 0; t < 11; t++) {
                size_t at = (n * 11 + t) % 40, next = (at + 1) % 40;
                size_t first = at < 7 ? 0 : at < 8 ? 7 : at < 38 ? 8 : 38;
                size_t after = next < 7 ? 0 : next < 8 ? 7 : next < 38 ? 8 : 38;

                assert_int_equal(in[t], token(at - first, 50000));
                assert_int_equal(out[t], token(next - after, 50000));
            }
        }
        sp_data_close(&d);
    }
    snprintf(pattern, sizeof pattern, "%s/none_*.bin", dir);
    assert_says(&c, sp_data_open(pattern, 0, 50000, &d), -ENOENT, "no file has such a name",
                "pattern");
    snprintf(pattern, sizeof pattern, "%s,,x", names);
    assert_says(&c, sp_data_open(pattern, 0, 50000, &d), -EINVAL,
                "an empty name between two commas", "empty");
    for (int i = 0; i < 4; i++) {
        char name[32];

        snprintf(name, sizeof name, "shard_%d.bin", i);
        unlink(scratch_path(dir, name, one));
    }
    /* a file may have such a name itself */
    must(!rename(token_file(5, 2, 50000), scratch_path(dir, "a,b*", one)), "rename");
    assert_int_equal(sp_data_open(one, 0, 50000, &d), 0);
    assert_int_equal(d.tokens, 5);
    sp_data_close(&d);
    /* nobody said how wide, and two bytes cannot number them all */
    assert_says(&c, sp_data_open(one, 0, 70000, &d), -EINVAL, "say --token-bytes 4, or 2", "wide");
    assert_says(&c, sp_data_open(one, 2, 70000, &d), 0, "warning: data ", "told");
    sp_data_close(&d);
    unlink(one);
    write_file(scratch_path(dir, "a.npz", one), "PK\3\4....", 8);
    assert_says(&c, sp_data_open(one, 0, 50000, &d), -EINVAL, "is a zip archive", "zip");
    assert_int_equal(sp_data_open(one, 1, 256, &d), 0); /* as text, any bytes */
    sp_data_close(&d);
    unlink(one);
}

/* Under a run a file may shrink, or be written anew. */
TEST(test_changes)
{
    struct capture c;
    struct sp_data d;
    int32_t in[40], out[40];

    assert_int_equal(sp_data_open(token_file(5000, 2, 50000), 2, 50000, &d), 0);
    must(!truncate(path, 4001), "truncate");
    assert_int_equal(sp_data_sample(&d, 48, 40, in, out), 0); /* tokens 1920 to 1960 */
    assert_says(&c, sp_data_sample(&d, 50, 40, in, out), -EIO,
                "tokens: ends at byte 4001, it had 10000 when it was opened", "truncated");
    assert_says(&c, sp_data_sample(&d, 100, 40, in, out), -EIO, "ends at byte 4001, it had 10000",
                "far behind the end");
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

TEST(test_threads)
{
    pthread_t thread[4];
    struct sp_data d;

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

TEST_FIXTURE(make_dir, remove_dir)
