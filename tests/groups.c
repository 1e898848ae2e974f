/*
 * unit [GROUP...]: runs all groups of a folder's tests, or the named ones, each in a process of its
 * own, so that none sees what another leaves behind. unit --list names them.
 *
 * Exit: 0 all passed, 1 some did not, 2 there is no such group.
 */
#include "groups.h"
#include "memory.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_GROUPS = 64, MOST_TESTS = 64 };

static struct group {
    char name[64];
    int (*run)(void); /* NULL: the tests below */
    int (*setup)(void **state), (*teardown)(void **state);
    int (*before)(void **state); /* each test, or NULL */
    struct CMUnitTest tests[MOST_TESTS];
    int lines[MOST_TESTS];
    size_t n_tests;
} groups[MOST_GROUPS];
static int n_groups;

static struct group *add_group(const char *name, int length)
{
    if (n_groups == MOST_GROUPS)
        abort();
    snprintf(groups[n_groups].name, sizeof groups->name, "%.*s", length, name);
    return &groups[n_groups++];
}

void test_group_add(const char *name, int (*run)(void))
{
    add_group(name, (int)strlen(name))->run = run;
}

/* The group of FOLDER/test_NAME.c. */
static struct group *find_group(const char *file)
{
    const char *name = strrchr(file, '/') + strlen("/test_");
    int length = (int)strlen(name) - (int)strlen(".c");

    for (int i = 0; i < n_groups; i++)
        if ((int)strlen(groups[i].name) == length && !strncmp(groups[i].name, name, (size_t)length))
            return &groups[i];
    return add_group(name, length);
}

void test_register(const char *file, int line, const char *name, void (*test)(void **state))
{
    struct group *g = find_group(file);
    size_t at = g->n_tests++;

    if (at == MOST_TESTS)
        abort();
    for (; at > 0 && g->lines[at - 1] > line; at--) { /* compilers may turn the order round */
        g->tests[at] = g->tests[at - 1];
        g->lines[at] = g->lines[at - 1];
    }
    g->tests[at] = (struct CMUnitTest){.name = name, .test_func = test};
    g->lines[at] = line;
}

void test_fixture(const char *file, int (*setup)(void **state), int (*teardown)(void **state))
{
    struct group *g = find_group(file);

    g->setup = setup;
    g->teardown = teardown;
}

void test_setup(const char *file, int (*setup)(void **state))
{
    find_group(file)->before = setup;
}

int test_every(int n)
{
    return getenv("SP_LONG") ? 1 : n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct group *)a)->name, ((const struct group *)b)->name);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static int free_memory(void **state)
{
    (void)state;
    test_end_after(0);
    return 0;
}

/* Returns how many tests failed. */
static int count_failures(struct group *g)
{
    if (g->run)
        return g->run();
    for (size_t i = 0; i < g->n_tests; i++) {
        g->tests[i].setup_func = g->before;
        g->tests[i].teardown_func = free_memory;
    }
    return _cmocka_run_group_tests(g->name, g->tests, g->n_tests, g->setup, g->teardown);
}

/* Returns 1 if the group passed, else 0. */
static int run_group(struct group *g)
{
    struct rusage usage;
    int status;
    pid_t pid;

    printf("---- %s\n", g->name);
    fflush(NULL);
    pid = fork();
    if (!pid)
        exit(count_failures(g) != 0);
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid) {
        perror(g->name);
        return 0;
    }
    if (WIFSIGNALED(status))
        printf("%s: ended by signal %d\n", g->name, WTERMSIG(status));
    printf("%s: %s, %.1f s of processors\n", g->name, status ? "failed" : "passed",
           seconds(usage.ru_utime) + seconds(usage.ru_stime));
    return !status;
}

static int is_named(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name))
            return 1;
    return argc == 1;
}

static int names_none(const char *name)
{
    for (int i = 0; i < n_groups; i++)
        if (!strcmp(groups[i].name, name))
            return 0;
    fprintf(stderr, "no group of tests is called %s; --list names them\n", name);
    return 1;
}

int main(int argc, char **argv)
{
    char failed[2048] = "";
    int ran = 0, passed = 0;

    qsort(groups, (size_t)n_groups, sizeof *groups, by_name);
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (int i = 0; i < n_groups; i++)
            puts(groups[i].name);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        if (names_none(argv[i]))
            return 2;
    for (int i = 0; i < n_groups; i++) {
        if (!is_named(groups[i].name, argc, argv))
            continue;
        ran++;
        if (run_group(&groups[i]))
            passed++;
        else
            snprintf(failed + strlen(failed), sizeof failed - strlen(failed), " %s",
                     groups[i].name);
    }
    printf("%d groups, %d passed%s%s\n", ran, passed, *failed ? ", failed:" : "", failed);
    return passed != ran;
}
