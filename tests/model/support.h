/* Shared by the tests of src/model: captured stderr, a scratch directory, distinct values. */
#ifndef TESTS_MODEL_SUPPORT_H
#define TESTS_MODEL_SUPPORT_H

#include <dirent.h>
#include <fts.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "capture.h"
#include "groups.h"

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

/* How many files a directory has. */
static inline int files_in(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    must(d != NULL, "opendir");
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

/* Removes the files of a directory. */
static inline void scratch_empty(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    must(d != NULL, "opendir");
    while ((e = readdir(d))) {
        char path[4500];

        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
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

/* The directory of a SCRATCH_TEST. */
static char *scratch;

/* A TEST in an empty directory of its own, which goes with all its contents. */
#define SCRATCH_TEST(name)                                                                         \
    static void name##_in_scratch(void);                                                           \
    TEST(name)                                                                                     \
    {                                                                                              \
        scratch = scratch_make();                                                                  \
        name##_in_scratch();                                                                       \
        scratch_remove(scratch);                                                                   \
    }                                                                                              \
    static void name##_in_scratch(void)

/* The same directory for all tests of a file: TEST_FIXTURE(scratch_setup, scratch_teardown). */
static inline int scratch_setup(void **state)
{
    (void)state;
    scratch = scratch_make();
    return 0;
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    scratch_remove(scratch);
    return 0;
}

/* The path of a file in it. The last 16 paths stay. */
static inline const char *in_scratch(const char *name)
{
    static char path[16][4200];
    static int turn;

    turn = (turn + 1) % 16;
    return scratch_path(scratch, name, path[turn]);
}

/* Writes a file in it that holds a text; returns its path. */
static inline const char *put_text(const char *name, const char *text)
{
    const char *path = in_scratch(name);

    write_file(path, text, strlen(text));
    return path;
}

/* Lets files grow to that many bytes, as on a full disk; returns the limit before. SIGXFSZ is ignored from then on. */
static inline rlim_t limit_files(rlim_t bytes)
{
    struct rlimit limit;
    rlim_t before;

    signal(SIGXFSZ, SIG_IGN);
    must(!getrlimit(RLIMIT_FSIZE, &limit), "getrlimit");
    before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    must(!setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
    return before;
}

#endif
