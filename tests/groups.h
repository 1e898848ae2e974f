/*
 * The unit tests of a folder are one program, FOLDER/unit. Each file of it is a group: test_csv.c is
 * the group csv. Its tests run in the order of the file:
 *
 *     TEST(round_trip)
 *     {
 *         assert_int_equal(1, 1);
 *     }
 *
 * A group that does more than run its tests says so in place of a main: TEST_GROUP(csv), with a body
 * that returns how many of its tests failed.
 */
#ifndef SP_TESTS_GROUPS_H
#define SP_TESTS_GROUPS_H

#define TEST(name)                                                                                 \
    static void test_of_##name(void **test_state);                                                 \
    __attribute__((constructor)) static void test_add_##name(void)                                 \
    {                                                                                              \
        test_register(__BASE_FILE__, __LINE__, #name, test_of_##name);                             \
    }                                                                                              \
    static void test_of_##name(__attribute__((unused)) void **test_state)

/* Functions that run before the first and after the last TEST of the file; NULL: none. */
#define TEST_FIXTURE(setup, teardown)                                                              \
    __attribute__((constructor)) static void test_add_fixture(void)                                \
    {                                                                                              \
        test_fixture(__BASE_FILE__, setup, teardown);                                              \
    }

/* Runs before each TEST of the file. */
#define TEST_SETUP(setup)                                                                          \
    __attribute__((constructor)) static void test_add_setup(void)                                  \
    {                                                                                              \
        test_setup(__BASE_FILE__, setup);                                                          \
    }

#define TEST_GROUP(name)                                                                           \
    static int group_##name##_run(void);                                                           \
    __attribute__((constructor)) static void group_##name##_add(void)                              \
    {                                                                                              \
        test_group_add(#name, group_##name##_run);                                                 \
    }                                                                                              \
    static int group_##name##_run(void)

/* Called by the macros before main runs. */
void test_register(const char *file, int line, const char *name, void (*test)(void **state));
void test_fixture(const char *file, int (*setup)(void **state), int (*teardown)(void **state));
void test_setup(const char *file, int (*setup)(void **state));
void test_group_add(const char *name, int (*run)(void));

/* Returns n: a test takes every n-th point of a grid. With SP_LONG in the environment (make
 * check-long) it returns 1. n has no factor in common with the sides of the grid, so that all rows
 * have their turn. */
int test_every(int n);

#endif
