/* Shared by the tests of src/model: captured stderr, a scratch directory, distinct values. */
#ifndef TESTS_MODEL_SUPPORT_H
#define TESTS_MODEL_SUPPORT_H

#include <fts.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "groups.h"

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

/* A directory of this test, removed by scratch_remove. */
static inline char *scratch_make(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = malloc(4096);

    must(dir != NULL, "malloc");
    snprintf(dir, 4096, "%s/starpipe-test-XXXXXX", base && *base ? base : "/tmp");
    must(mkdtemp(dir) != NULL, "mkdtemp");
    return dir;
}

/* Removes the directory with all its contents. */
static inline void scratch_remove(char *dir)
{
    char *const paths[] = {dir, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL, NULL);
    FTSENT *e;

    must(tree != NULL, "fts_open");
    while ((e = fts_read(tree)))
        if (e->fts_info != FTS_D)
            remove(e->fts_accpath);
    fts_close(tree);
    free(dir);
}

static inline const char *scratch_path(const char *dir, const char *name, char out[4200])
{
    snprintf(out, 4200, "%s/%s", dir, name);
    return out;
}

static inline void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    must(f && fwrite(data, 1, n, f) == n && !fclose(f), "writing a file");
}

#endif
