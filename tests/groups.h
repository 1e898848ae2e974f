/*
 * The unit tests of a folder are one program, FOLDER/unit. Each file of it is a group with the name of the
 * file, and says so in the place of a main:
 *
 *     TEST_GROUP(csv)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};
 *
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     }
 */
#ifndef SP_TESTS_GROUPS_H
#define SP_TESTS_GROUPS_H

/* Registers the group before main runs. The body returns how many of its tests failed. */
#define TEST_GROUP(name)                                                                           \
    static int group_##name##_run(void);                                                           \
    __attribute__((constructor)) static void group_##name##_add(void)                              \
    {                                                                                              \
        test_group_add(#name, group_##name##_run);                                                 \
    }                                                                                              \
    static int group_##name##_run(void)

void test_group_add(const char *name, int (*run)(void));

/* Returns n: a test takes every n-th point of a grid. With SP_LONG in the environment (make
 * check-long) it returns 1. n has no factor in common with the sides of the grid, so that all rows
 * have their turn. */
int test_every(int n);

#endif
