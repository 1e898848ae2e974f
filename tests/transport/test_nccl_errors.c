/*
 * Errors of messages over NCCL, with the fake StarPU, CUDA and NCCL. Each gives one line with the
 * cause and reaches the caller as an error; nothing hangs.
 */
#include "policies/common.h"
#include "transport/fake_starpu.h"
#include "transport/fake_wire.h"
#include "transport/nccl/nccl.h"
#include "transport/poll.h"
#include <pthread.h>
#include <sys/wait.h>

/* Two ranks that are threads; each does `work` with its transport. */
struct rank {
    pthread_t thread;
    struct sp_wire *wire;
    struct sp_nccl_config cfg;
    void (*work)(struct sp_nccl *nccl, int rank);
    int err;
    char why[256];
};

static int failures;
static starpu_data_handle_t handle[2];

static void count_failure(int status)
{
    (void)status;
    __atomic_add_fetch(&failures, 1, __ATOMIC_ACQ_REL);
}

static void *be_rank(void *arg)
{
    struct rank *r = arg;
    struct sp_nccl *nccl;

    r->err = sp_nccl_start(&r->cfg, r->wire, r->why, sizeof r->why, &nccl);
    if (r->err)
        return NULL;
    if (r->work)
        r->work(nccl, r->wire->rank);
    sp_nccl_stop(nccl);
    return NULL;
}

static void run_ranks(struct rank ranks[2], void (*work)(struct sp_nccl *nccl, int rank))
{
    struct sp_wire *wires = fake_wires(2, 1);

    failures = 0;
    fake_starpu_start(2, 100, 1);
    for (int r = 0; r < 2; r++) {
        ranks[r].wire = fake_wire(wires, r);
        ranks[r].work = work;
        if (!ranks[r].cfg.device)
            ranks[r].cfg.device = r;
        ranks[r].cfg.fail = count_failure;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, be_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    fake_starpu_stop();
    fake_wires_free(wires);
}

/* ---- mistakes of the caller ------------------------------------------------------------------------------- */

static void same_tag(struct sp_nccl *nccl, int rank)
{
    if (rank == 0) {
        sp_nccl_send(nccl, handle[0], 1, 7);
        sp_nccl_send(nccl, handle[0], 1, 7);
    }
    sp_nccl_wait_all(nccl);
}

static void no_edge(struct sp_nccl *nccl, int rank)
{
    if (rank == 0)
        sp_nccl_send(nccl, handle[0], 0, 7);
}

/* It ends a process after its line: a child, forked before the runs whose stuck threads it would not have. */
static void mistake(void (*work)(struct sp_nccl *nccl, int rank), const char *line)
{
    struct rank ranks[2] = {0};
    struct capture said;
    int status = 0;
    pid_t pid;

    handle[0] = fake_handle(100);
    capture_begin(&said);
    pid = fork();
    if (pid == 0) {
        alarm(10);
        run_ranks(ranks, work);
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    capture_end(&said);
    fake_handle_free(handle[0]);
    if (!strstr(said.text, line))
        fail_msg("%s", said.text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST(callers)
{
    mistake(same_tag, "starpipe: internal: message 7, rank 0 to rank 1: its tag is on its way "
                      "already\n");
    mistake(no_edge, "starpipe: internal: message 7, rank 0 to rank 0: no communicator was made "
                     "for it\n");
}

/* ---- at the start --------------------------------------------------------------------------------------- */

/* In a child, as a library that was loaded stays so. */
static void start_fails(const char *name, const char *value, int err, const char *pattern)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        struct rank ranks[2] = {0};

        setenv(name, value, 1);
        run_ranks(ranks, NULL);
        if (ranks[0].err != err || ranks[1].err != err)
            _exit(1);
        if (!strstr(ranks[0].why, pattern) || !strstr(ranks[1].why, pattern)) {
            printf("%s\n", ranks[0].why);
            fflush(stdout);
            _exit(2);
        }
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

TEST(library)
{
    start_fails("SP_NCCL_LIBRARY", "libno-such-nccl.so.2", -ELIBACC,
                "NCCL cannot be loaded: libno-such-nccl.so.2: cannot open shared object file");
    start_fails("SP_NCCL_LIBRARY", "libm.so.6", -ELIBACC, "libm.so.6 is NCCL 0, at least 21801");
    start_fails("CUDA_LAUNCH_BLOCKING", "1", -ENOTSUP,
                "CUDA_LAUNCH_BLOCKING=1 lets a message wait for one of another edge: unset it");
    start_fails("NCCL_LAUNCH_ORDER_IMPLICIT", "1", -ENOTSUP, "NCCL_LAUNCH_ORDER_IMPLICIT=1 lets");
    start_fails("FAKE_NCCL_VERSION", "21708", -ELIBACC, " is NCCL 21708, at least 21801 is needed");
}

TEST(device)
{
    struct rank ranks[2] = {{.cfg.device = 0}, {.cfg.device = 99}};
    struct capture said;

    capture_begin(&said);
    run_ranks(ranks, NULL);
    assert_string_equal(capture_end(&said), "starpipe: cudaSetDevice: error 101\n");
    assert_int_equal(ranks[0].err, -EIO);
    assert_int_equal(ranks[1].err, -EIO);
}

/* ---- in a run ------------------------------------------------------------------------------------------- */

/* Rank 0 sends 100 bytes, rank 1 receives 104: the sender knows first. */
static void differ(struct sp_nccl *nccl, int rank)
{
    if (rank == 0) {
        sp_nccl_send(nccl, handle[0], 1, 7);
        assert_int_equal(sp_nccl_wait_all(nccl), -EIO);
    } else {
        sp_nccl_recv(nccl, handle[1], 0, 7, NULL, NULL);
        while (!__atomic_load_n(&failures, __ATOMIC_ACQUIRE))
            usleep(1000);
        sp_nccl_abort(nccl);
        assert_int_equal(sp_nccl_wait_all(nccl), -EIO);
    }
}

TEST(sizes)
{
    struct rank ranks[2] = {0};
    struct capture said;

    handle[0] = fake_handle(100);
    handle[1] = fake_handle(104);
    capture_begin(&said);
    run_ranks(ranks, differ);
    assert_string_equal(capture_end(&said), "starpipe: internal: message 7 (rank 0 to 1) has 100 "
                                            "bytes here, 104 at the other end\n");
    assert_int_equal(failures, 1);
}

/* Rank 1 leaves while rank 0 has a message under way. Rank 0 learns of it only when it checks the
 * communicator for errors, and must not wait for the message. */
static void leave(struct sp_nccl *nccl, int rank)
{
    if (rank == 0) {
        sp_nccl_send(nccl, handle[0], 1, 7);
        assert_int_equal(sp_nccl_wait_all(nccl), -EIO);
    } else {
        sp_nccl_recv(nccl, handle[1], 0, 7, NULL, NULL);
        usleep(300000);
        sp_nccl_abort(nccl);
    }
}

TEST(peer_gone)
{
    struct rank ranks[2] = {0};
    struct capture said;

    handle[0] = fake_handle(100);
    handle[1] = fake_handle(100);
    setenv("FAKE_NCCL_STOP_AFTER", "1", 1); /* the first transfer makes the edge ready */
    capture_begin(&said);
    run_ranks(ranks, leave);
    unsetenv("FAKE_NCCL_STOP_AFTER");
    assert_string_equal(capture_end(&said),
                        "starpipe: a message between GPUs: remote process exited or there was a "
                        "network error\n");
    assert_int_equal(failures, 1);
}
