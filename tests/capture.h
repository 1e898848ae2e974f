/* Shared by the tests: what is written to stderr, captured and held against what is expected. */
#ifndef SP_TESTS_CAPTURE_H
#define SP_TESTS_CAPTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void must(int ok, const char *what)
{
    if (!ok) {
        fail_msg("%s failed", what);
        abort(); /* fail_msg does not return, which the compiler cannot know */
    }
}

struct capture {
    int saved;
    FILE *into;
    char text[4096];
};

static inline void capture_begin(struct capture *c)
{
    fflush(stderr);
    c->saved = dup(STDERR_FILENO);
    c->into = tmpfile();
    must(c->saved >= 0 && c->into && dup2(fileno(c->into), STDERR_FILENO) >= 0, "capture");
}

/* Returns the text written to stderr since capture_begin. */
static inline const char *capture_end(struct capture *c)
{
    size_t n;

    fflush(stderr);
    must(dup2(c->saved, STDERR_FILENO) >= 0, "end of capture");
    close(c->saved);
    rewind(c->into);
    n = fread(c->text, 1, sizeof c->text - 1, c->into);
    c->text[n] = 0;
    fclose(c->into);
    return c->text;
}

/* Checks that `text` is one line with the prefix and `word` in it. */
static inline void assert_said(const char *text, const char *word, const char *what)
{
    size_t n = strlen(text);

    if (strncmp(text, "starpipe: ", 10) || n == 0 || strchr(text, '\n') != text + n - 1 ||
        !strstr(text, word))
        fail_msg("%s: expected one line with \"%s\", got \"%s\"", what, word, text);
}

/* Runs a call: gives its result, and its stderr in c->text. */
#define CAPTURED(c, call) capture_return(c, (capture_begin(c), (call)))

static inline int capture_return(struct capture *c, int ret)
{
    capture_end(c);
    return ret;
}

/* A call returns `code` and says one line with `word`. */
#define assert_says(c, call, code, word, what)                                                     \
    do {                                                                                           \
        assert_int_equal(CAPTURED(c, call), code);                                                 \
        assert_said((c)->text, word, what);                                                        \
    } while (0)

#endif
