/* Text printed in pieces of any size must come out as Python decodes it whole with
 * errors="replace". */
#include "cli/print.h"
#include "model/support.h"
#include <stdlib.h>
#include <string.h>

#define BAD "\xef\xbf\xbd"

static const struct {
    const char *bytes, *text;
    size_t n;
} cases[] = {
#define CASE(bytes, text)                                                                          \
    {                                                                                              \
        bytes, text, sizeof bytes - 1                                                              \
    }
    CASE("plain\n", "plain\n"),
    CASE("a\xc3\xa9", "a\xc3\xa9"),
    CASE("\xe2\x82", BAD),
    CASE("\xe2\x82x", BAD "x"),
    CASE("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"),
    CASE("\xf0\x9f\x98", BAD),
    CASE("\xf0\x9f\x98z", BAD "z"),
    CASE("\xc0\xaf", BAD BAD),
    CASE("\xe0\x80\xaf", BAD BAD BAD),
    CASE("\xed\xa0\x80", BAD BAD BAD),
    CASE("\xf4\x90\x80\x80", BAD BAD BAD BAD),
    CASE("\xf0\x80\x80\x80", BAD BAD BAD BAD),
    CASE("\xf5"
         "a",
         BAD "a"),
    CASE("\xff\xfe", BAD BAD),
    CASE("\x80", BAD),
    CASE("\xc3\xc3\xa9", BAD "\xc3\xa9"),
    CASE("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
         "A",
         BAD BAD BAD BAD "A"),
    CASE("\xef\xbf\xbe", "\xef\xbf\xbe"),
};

/* Prints bytes in pieces of `size`; the caller frees the result. */
static char *print(const char *bytes, size_t n, size_t size, bool plain)
{
    char *text = NULL;
    size_t length;
    struct sp_utf8_printer p = {.to = open_memstream(&text, &length), .plain = plain};

    for (size_t at = 0; at < n; at += size)
        sp_utf8_print(&p, bytes + at, n - at < size ? n - at : size);
    sp_utf8_print_end(&p);
    fclose(p.to);
    return text;
}

TEST(test_replaced)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t size = 1; size <= 9; size++) {
            char *text = print(cases[i].bytes, cases[i].n, size, false);

            assert_string_equal(text, cases[i].text);
            free(text);
        }
}

/* Plain text holds nothing that a terminal would obey. */
TEST(test_plain)
{
    const char bytes[] = "a\x1b[2J\r\a\x7f\xc2\x9b"
                         "1m\tb\n\xc3\xa9";
    char *raw = print(bytes, sizeof bytes - 1, 1, false);
    char *plain = print(bytes, sizeof bytes - 1, 1, true);

    assert_string_equal(raw, bytes);
    assert_string_equal(plain, "a?[2J????1m\tb\n\xc3\xa9");
    free(raw);
    free(plain);
}
