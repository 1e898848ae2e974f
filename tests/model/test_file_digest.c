/* The digest of a file depends on its size, its ends, and 256 of its pages. */
#include "model/support.h"
#include "model/files/file_digest.h"
#include <fcntl.h>

static uint64_t digest_of(const char *bytes, size_t n)
{
    const char *path = in_scratch("digest");
    uint64_t size, digest;
    int fd;

    write_file(path, bytes, n);
    fd = open(path, O_RDONLY);
    must(fd >= 0, "open");
    assert_int_equal(sp_file_digest(fd, path, &size, &digest), 0);
    assert_int_equal(size, n);
    close(fd);
    return digest;
}

SCRATCH_TEST(test_digest)
{
    enum { PAGE = 4096, LARGE = 300 * PAGE + 77 };
    static const size_t sizes[] = {1, PAGE - 1, PAGE, PAGE + 1, 256 * PAGE, LARGE};
    char *bytes = malloc(LARGE);
    uint64_t digest;
    int seen = 0;

    must(bytes != NULL, "malloc");
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (char)((7 * i * i + 3 * i + 1) % 251);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];

        digest = digest_of(bytes, n);
        assert_true(digest == digest_of(bytes, n));
        assert_true(digest != digest_of(bytes, n - 1 > 0 ? n - 1 : 2));
        for (int end = 0; end < 2; end++) {
            bytes[end ? n - 1 : 0] ^= 1;
            assert_true(digest != digest_of(bytes, n));
            bytes[end ? n - 1 : 0] ^= 1;
        }
    }
    digest = digest_of(bytes, LARGE);
    for (int p = 0; p < 301; p++) {
        bytes[(size_t)p * PAGE + 50] ^= 1;
        seen += digest != digest_of(bytes, LARGE);
        bytes[(size_t)p * PAGE + 50] ^= 1;
    }
    assert_int_equal(seen, 256);
    memset(bytes, 0, LARGE); /* all that is looked at is equal, but for the size */
    assert_true(digest_of(bytes, 300 * PAGE) != digest_of(bytes, 299 * PAGE));
    free(bytes);
}
