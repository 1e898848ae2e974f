/* A checkpoint's checksums: what was written loads, any bit that is flipped is refused by name. */
#include "model/support.h"
#include "model/files/checksums.h"
#include <errno.h>
#include <stdbool.h>

static const char *const names[] = {"a.json", "weights", NULL};
enum { WEIGHTS = 3000 };

static struct sp_dir opened; /* the scratch directory */

/* a.json as a whole, weights in three parts. */
static void make(void)
{
    unsigned char bytes[WEIGHTS];
    json_t *files = json_object();
    struct sp_file_sum *s = sp_file_sum_create();

    for (int i = 0; i < WEIGHTS; i++)
        bytes[i] = (unsigned char)(i * i % 253);
    put_text("a.json", "{\"step\": 5}");
    json_object_set_new(files, "a.json", sp_file_sum_in(&opened, "a.json"));
    write_file(in_scratch("weights"), bytes, WEIGHTS);
    sp_file_sum_add(s, bytes, 100);
    sp_file_sum_part(s, "header");
    sp_file_sum_add(s, bytes + 100, 1000);
    sp_file_sum_add(s, bytes + 1100, 900);
    sp_file_sum_part(s, "first");
    sp_file_sum_add(s, bytes + 2000, WEIGHTS - 2000);
    sp_file_sum_part(s, "second");
    json_object_set_new(files, "weights", sp_file_sum_end(s));
    assert_int_equal(sp_checksums_write(&opened, files), 0);
}

/* All shares of the work; the first error. */
static int verify(int shares)
{
    int err = 0;

    for (int i = 0; i < shares; i++) {
        int one = sp_checksums_verify(&opened, names, i, shares);

        err = err ? err : one;
    }
    return err;
}

static char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(1 << 20);

    must(f && bytes, "reading");
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

TEST(test_whole)
{
    json_t *sums;
    char *bytes;
    size_t n;

    make();
    for (int shares = 1; shares < 7; shares++)
        assert_int_equal(verify(shares), 0);
    /* The parts and the whole are the same sums. */
    bytes = read_all(in_scratch(SP_CHECKSUMS_FILE), &n);
    bytes[n] = '\0';
    sums = sp_file_sum_in(&opened, "weights");
    assert_non_null(strstr(bytes, json_string_value(json_object_get(sums, "checksum"))));
    json_decref(sums);
    free(bytes);
    unlink(in_scratch(SP_CHECKSUMS_FILE));
    assert_int_equal(verify(1), -ENOENT);
}

/* Refused, or the same values: what is no part of a value may change, as a space of the JSON. */
static void flip(const char *name, const char *word, bool all)
{
    const char *path = in_scratch(name);
    struct capture c;
    char *bytes;
    size_t n, step = (size_t)test_every(27); /* one bit of every third byte, by turns */
    int harmless = 0;

    make();
    bytes = read_all(path, &n);
    for (size_t bit = 0; bit < 8 * n; bit += step) {
        int err;

        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(path, bytes, n);
        err = CAPTURED(&c, verify(2));
        harmless += !err;
        if (err && (c.text[0] == '\0' || (word && !strstr(c.text, word))))
            fail_msg("%s, bit %zu: said '%s'", name, bit, c.text);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    printf("    %s: %zu bits flipped, %d changed nothing\n", name, (8 * n + step - 1) / step,
           harmless);
    assert_true(all ? harmless == 0 : harmless < (int)n);
    free(bytes);
}

TEST(test_flipped_bits)
{
    flip("a.json", "a.json: damaged: it has checksum", true);
    flip("weights", "weights: damaged: ", true);
    flip(SP_CHECKSUMS_FILE, NULL, false);
}

static void refused(const char *word)
{
    struct capture c;

    capture_begin(&c);
    assert_true(verify(1) < 0);
    assert_said(capture_end(&c), word, word);
}

TEST(test_names_what_is_wrong)
{
    const char *path = in_scratch("weights");
    char *bytes;
    size_t n;

    make();
    bytes = read_all(path, &n);
    bytes[2500] ^= 4;
    write_file(path, bytes, n);
    refused("damaged: tensor second has checksum");
    bytes[2500] ^= 4;
    write_file(path, bytes, n - 1);
    refused("it has 2999 bytes, 3000 were saved");
    unlink(path);
    refused("weights: cannot be opened");
    write_file(path, bytes, n);
    put_text(SP_CHECKSUMS_FILE, "{");
    refused("no checksums of XXH3_128bits");
    sp_checksums_write(&opened, json_object());
    refused("no checksum of a.json");
    free(bytes);
}

static int setup(void **state)
{
    scratch_setup(state);
    return sp_dir_open(scratch, &opened);
}

TEST_FIXTURE(setup, scratch_teardown)
