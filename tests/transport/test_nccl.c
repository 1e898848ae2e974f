/*
 * The transport over NCCL with ranks that are threads: many edges at once in both directions; both
 * ends in orders of their own, or few buffers; late callbacks, late notes, transfers that wait for
 * each other. Every value is checked. If a mistake is planted in the rules
 * by which ends agree, messages fail, data are wrong, or all ranks stand still; the tests notice
 * that.
 */
#include "policies/common.h"
#include "transport/agree_wrong.h"
#include "transport/nccl_run.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* ---- in a child, as a run that goes wrong ends its process -------------------------------------------- */

enum { STUCK = 100 };

static int run_in_child(const struct nccl_run *run, int seconds)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(NCCL_FAILED);
        alarm((unsigned)seconds);
        _exit((int)nccl_run(run));
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? STUCK : NCCL_FAILED;
    return WEXITSTATUS(status);
}

static const char *words(int outcome)
{
    return outcome == NCCL_RIGHT        ? "not seen"
           : outcome == NCCL_FAILED     ? "a message failed"
           : outcome == NCCL_WRONG_DATA ? "wrong data"
           : outcome == NCCL_LOST       ? "a message was lost"
                                        : "stood still";
}

TEST(mistakes)
{
    for (int m = AGREE_RIGHT + 1; m < AGREE_MISTAKES; m++) {
        int outcome = NCCL_RIGHT, tries = 0;

        agree_mistake = (enum agree_mistake)m;
        while (outcome == NCCL_RIGHT && tries < 20) {
            struct nccl_run run = {.seed = (uint64_t)(500 + tries),
                                   .ranks = 3,
                                   .messages = 200,
                                   .depth = 1,
                                   .any_order = !(tries & 1)};

            tries++;
            outcome = run_in_child(&run, 3);
        }
        printf("mistake %d: %s (run %d)\n", m, words(outcome), tries);
        assert_int_not_equal(outcome, NCCL_RIGHT);
    }
    agree_mistake = AGREE_RIGHT;
}

/* If all streams share one queue of the GPU, a stream may have one message at a time, which waits
 * only for its peer. With three, the second one would stop the op that its peer waits for. */
TEST(queues)
{
    struct nccl_run run = {.seed = 3, .ranks = 4, .messages = 200, .depth = 1};
    int one, three;

    setenv("SP_FAKE_GPU_QUEUES", "1", 1);
    one = run_in_child(&run, 60);
    run.depth = 3;
    three = run_in_child(&run, 3);
    unsetenv("SP_FAKE_GPU_QUEUES");
    assert_int_equal(one, NCCL_RIGHT);
    assert_int_equal(three, STUCK);
}

/* ---- right ---------------------------------------------------------------------------------------------- */

static void right(struct nccl_run run)
{
    alarm(60);
    assert_int_equal(nccl_run(&run), NCCL_RIGHT);
    alarm(0);
}

TEST(runs)
{
    int runs = getenv("SP_TEST_RUNS") ? atoi(getenv("SP_TEST_RUNS")) : 24, messages = 0;
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < runs; i++) {
        struct nccl_run run = {.seed = (uint64_t)i + 1,
                               .ranks = 2 + i % 3,
                               .messages = 40 + 37 * i % 300,
                               .depth = 1 + i / 4 % 3,
                               .any_order = i / 2 & 1};

        setenv("FAKE_NCCL_EAGER", i % 3 ? "0" : "4000", 1);
        setenv("FAKE_NCCL_DELAY_US", i % 5 ? "0" : "300", 1);
        right(run);
        messages += run.messages;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    unsetenv("FAKE_NCCL_EAGER");
    unsetenv("FAKE_NCCL_DELAY_US");
    printf("%d runs, %d messages in %.1f s\n", runs, messages,
           (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
}
