/* Reading safetensors: every dtype as floats, and everything malformed refused by name. */
#include "support.h"
#include "model/files/safetensors.h"
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

/* A file from its header and `bytes` bytes of data 0, 1, 2, ... */
static void craft(const char *path, uint64_t header_bytes, const char *header, size_t bytes)
{
    FILE *f = fopen(path, "wb");

    must(f != NULL, "fopen");
    must(fwrite(&header_bytes, 8, 1, f) == 1, "fwrite");
    fputs(header, f);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)i, f);
    must(!fclose(f), "fclose");
}

/* Bit for bit, signed zeros included; any NaN for a NaN. */
static void assert_same_value(float x, float expected)
{
    if (isnan(expected))
        assert_true(isnan(x));
    else if (memcmp(&x, &expected, sizeof x))
        fail_msg("%a instead of %a", x, expected);
}

SCRATCH_TEST(half_precision)
{
    static const struct {
        uint16_t bits;
        float f16, bf16;
    } known[] = {{0x0000, 0.0f, 0.0f},
                 {0x8000, -0.0f, -0.0f},
                 {0x0001, 0x1p-24f, 0x1p-133f},
                 {0x03ff, 0x3ffp-24f, 0x1.fep-120f},
                 {0x0400, 0x1p-14f, 0x1p-119f},
                 {0x3c00, 1.0f, 0x1p-7f},
                 {0x3555, 0x1.554p-2f, 0x1.aap-21f},
                 {0x7bff, 65504.0f, 0x1.fep120f},
                 {0xfbff, -65504.0f, -0x1.fep120f},
                 {0x7c00, INFINITY, 0x1p121f},
                 {0xfc00, -INFINITY, -0x1p121f},
                 {0x7f80, NAN, INFINITY},
                 {0x3f80, 0x1.ep0f, 1.0f},
                 {0xc049, -0x1.124p1f, -3.140625f}};
    enum { N = sizeof known / sizeof known[0] };
    const char *path = in_scratch("half.safetensors");
    char header[400];
    uint16_t bits[2 * N + 1];
    struct sp_st_file st;
    float x[N + 1];
    FILE *f;

    for (int i = 0; i < N; i++)
        bits[i] = bits[N + 1 + i] = known[i].bits;
    bits[N] = 0x7e01; /* NaN */
    snprintf(header, sizeof header,
             "{\"b\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
             "\"h\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
             N, 2 * N + 2, 4 * N + 2, N + 1, 2 * N + 2);
    craft(path, strlen(header), header, 0);
    f = fopen(path, "ab");
    must(f && fwrite(bits, sizeof bits, 1, f) == 1 && !fclose(f), "fwrite");

    assert_int_equal(sp_st_open(path, &st), 0);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "h"), x), 0);
    for (int i = 0; i < N; i++)
        assert_same_value(x[i], known[i].f16);
    assert_true(isnan(x[N]));
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "b"), x), 0);
    for (int i = 0; i < N; i++)
        assert_same_value(x[i], known[i].bf16);
    sp_st_close(&st);
}

#define T(NAME, DTYPE, SHAPE, BEGIN, END)                                                          \
    "\"" NAME "\":{\"dtype\":\"" DTYPE "\",\"shape\":" SHAPE ",\"data_offsets\":[" #BEGIN "," #END \
    "]}"

static const struct {
    const char *header;
    size_t bytes;     /* of data */
    const char *word; /* of the refusal; NULL: accepted */
} headers[] = {
    {"{" T("a", "F32", "[2]", 0, 8) "}", 8, NULL},
    {"{" T("a", "F32", "[2]", 0, 8) "}      ", 8, NULL},
    {"{}", 0, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[2]", 0, 8) "}", 8, NULL},
    {"{" T("b", "F32", "[1]", 4, 8) "," T("a", "F32", "[]", 0, 4) "}", 8, NULL},
    {"{" T("a", "F32", "[0]", 0, 0) "," T("b", "F32", "[1]", 0, 4) "}", 4, NULL},
    {"{" T("a", "I64", "[1]", 0, 8) "}", 8, NULL},
    {"{" T("a", "F8_E4M3", "[3]", 0, 3) "}", 3, NULL},
    {"{" T("a", "NEW7", "[3]", 0, 5) "}", 5, NULL}, /* size unknown */
    {"", 0, "JSON"},
    {"nonsense", 0, "JSON"},
    {"{" T("a", "F32", "[2]", 0, 8) "} x", 8, "JSON"},
    {"[]", 0, "not a JSON object"},
    {"{\"a\":3}", 0, "not described by an object"},
    {"{\"a\":{}}", 0, "dtype is missing"},
    {"{\"a\":{\"dtype\":5}}", 0, "dtype is missing"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "shape is not a list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4, "data_offsets"},
    {"{" T("a", "F32", "[1]", -4, 0) "}", 4, "data_offsets"},
    {"{" T("a", "F32", "[1]", 0, 4.0) "}", 4, "data_offsets"},
    {"{" T("a", "F32", "[1]", 0, 99999999999999999999) "}", 4, "data_offsets are not two sizes"},
    {"{" T("a", "F32", "[1]", 8, 4) "}", 8, "begins at 8, after its end at 4"},
    {"{" T("a", "F32", "[3]", 0, 12) "}", 8, "ends at 12, the data at 8"},
    {"{" T("a", "F32", "[3]", 0, 8) "}", 8, "3 elements of F32 in 8 bytes"},
    {"{" T("a", "F16", "[3]", 0, 12) "}", 12, "3 elements of F16 in 12 bytes"},
    {"{" T("a", "BOOL", "[3]", 0, 4) "}", 4, "3 elements of BOOL in 4 bytes"},
    {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, "dimension 0 is not a size"},
    {"{" T("a", "F32", "[1,\"2\"]", 0, 4) "}", 4, "dimension 1 is not a size"},
    {"{" T("a", "F32", "[1.5]", 0, 4) "}", 4, "dimension 0 is not a size"},
    {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "overflows"},
    {"{" T("a", "F32", "[4611686018427387904,2,2,2]", 0, 0) "}", 0, "overflows"},
    {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "in 0 bytes"}, /* times 4 is 0 */
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "9 dimensions, at most 8"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "duplicate"},
    {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 4, 8) "}", 8, "inside another"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 4, "inside another"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12, "hole that begins"},
    {"{" T("a", "F32", "[1]", 4, 8) "}", 8, "hole that begins at 0"},
    {"{" T("a", "F32", "[1]", 0, 4) "}", 8, "8 bytes of data, the tensors fill 4"},
    {"{}", 3, "3 bytes of data, the tensors fill 0"},
    {"{" T("", "F32", "[1]", 0, 4) "}", 4, "without a name"},
    {"{" T("a\\nb", "F32", "[1]", 0, 4) "}", 4,
     "control characters in the name of a tensor: a\\x0ab"},
    {"{" T("a\\u0000b", "F32", "[1]", 0, 4) "}", 4, "JSON"},
    {"{" T("a\xff", "F32", "[1]", 0, 4) "}", 4, "JSON"},
};

SCRATCH_TEST(headers_good_and_bad)
{
    const char *path = in_scratch("x.safetensors");
    int accepted = 0, refused = 0;

    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct sp_st_file st;
        struct capture c;
        int rc;

        craft(path, strlen(headers[i].header), headers[i].header, headers[i].bytes);
        rc = CAPTURED(&c, sp_st_open(path, &st));
        if (headers[i].word) {
            assert_said(c.text, headers[i].word, headers[i].header);
            assert_non_null(strstr(c.text, path));
            assert_int_equal(rc, -EINVAL);
            refused++;
        } else {
            if (rc || *c.text)
                fail_msg("%s: refused: %s", headers[i].header, c.text);
            sp_st_close(&st);
            accepted++;
        }
    }
    printf("%d headers accepted, %d refused\n", accepted, refused);
}

SCRATCH_TEST(files_cut_and_lying)
{
    static const char good[] = "{" T("a", "F32", "[2]", 0, 8) "}";
    static const struct {
        uint64_t header_bytes;
        const char *word;
    } lengths[] = {{sizeof good + 8, "header of"},
                   {100000000, "header of 100000000 bytes in"},
                   {100000001, "at most 100000000"},
                   {UINT64_MAX, "at most 100000000"},
                   {UINT64_C(1) << 63, "at most 100"},
                   {0, "JSON"},
                   {5, "JSON"}};
    const char *path = in_scratch("x.safetensors");
    struct sp_st_file st;
    struct capture c;
    float x[2];

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        craft(path, lengths[i].header_bytes, good, 8);
        assert_says(&c, sp_st_open(path, &st), -EINVAL, lengths[i].word, "header length");
    }
    craft(path, strlen(good), good, 8);
    for (long n = (long)(8 + strlen(good)) + 7; n >= 0; n--) { /* every truncation */
        assert_int_equal(truncate(path, n), 0);
        assert_says(&c, sp_st_open(path, &st), -EINVAL, path, "truncated");
    }

    craft(path, strlen(good), good, 8); /* truncated while it is open */
    assert_int_equal(sp_st_open(path, &st), 0);
    assert_int_equal(truncate(path, (long)(8 + strlen(good)) + 6), 0);
    assert_says(&c, sp_st_read(&st, &st.entries[0], x), -EIO, "it was longer",
                "truncated while open");
    assert_says(&c, sp_st_read_part(&st, &st.entries[0], 1, 2, x), -EINVAL,
                "elements 1 .. 3 of tensor a, which has 2", "part");
    assert_says(&c, sp_st_read_part(&st, &st.entries[0], UINT64_MAX, 2, x), -EINVAL, "which has 2",
                "part that wraps");
    sp_st_close(&st);

    craft(path, strlen("{" T("a", "I32", "[2]", 0, 8) "}"), "{" T("a", "I32", "[2]", 0, 8) "}", 8);
    assert_int_equal(sp_st_open(path, &st), 0);
    assert_says(&c, sp_st_read(&st, &st.entries[0], x), -EINVAL, "tensor a is I32", "integers");
    sp_st_close(&st);

    unlink(path);
    assert_says(&c, sp_st_open(path, &st), -ENOENT, "cannot be opened", "absent");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_says(&c, sp_st_open(path, &st), -EINVAL, "not a regular file",
                "pipe"); /* and does not wait for a writer */
}
