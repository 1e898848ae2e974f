/* That the emulation finds what it is for. */
#include "cuda_test.h"
#include "defects.h"
#include <sys/wait.h>
#include <unistd.h>

static int status_of(enum defect defect)
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        sp_defect_run(defect);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ends)
{
    assert_int_equal(status_of(NO_DEFECT), 0);
    for (enum defect d = NO_DEFECT + 1; d < DEFECTS; d++)
        assert_int_equal(status_of(d), 1);
}

TEST(shows)
{
    for (unsigned order = 0; order < ORDERS; order++) {
        assert_true(sp_defect_race(order, true));
        assert_false(sp_defect_race(order, false));
    }
    assert_true(sp_defect_copy(true));
    assert_false(sp_defect_copy(false));
    assert_false(sp_defect_uninitialised());
    assert_false(sp_defect_host_memory());
}

TEST(limits)
{
    assert_true(sp_defect_launch(65535, 32, 0, false));
    assert_false(sp_defect_launch(65536, 32, 0, false));
    assert_true(sp_defect_launch(1, 1024, 48 << 10, false));
    assert_false(sp_defect_launch(1, 1056, 0, false));
    assert_false(sp_defect_launch(1, 33, 0, false));
    assert_false(sp_defect_launch(1, 32, (48 << 10) + 16, false));
    assert_true(sp_defect_launch(1, 32, 99 << 10, true));
    assert_false(sp_defect_launch(1, 32, (99 << 10) + 16, true));
}
