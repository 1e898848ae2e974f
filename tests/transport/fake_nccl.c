/*
 * A fake NCCL for tests: transfers between processes, or between ranks of one process, over local
 * sockets, run by the streams of tests/fake_cuda. It is as strict as NCCL may be: a communicator's
 * transfers run in the order of its stream, a send waits until its receive has begun, and the two
 * have the same size or the communicator fails.
 *
 * FAKE_NCCL_EAGER=B: sends of up to B bytes do not wait. FAKE_NCCL_DELAY_US=T: a transfer begins up
 * to T microseconds after its turn. FAKE_NCCL_STOP_AFTER=N: after N transfers a communicator stands
 * still. FAKE_NCCL_VERSION: the version that it reports.
 */
#include "fake_cuda/fake_cudart.h"
#include <errno.h>
#include <nccl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct ncclComm {
    int rank, n;
    int *fds; /* [n] */
    int aborted, error;
    unsigned seed, run; /* transfers so far */
};

enum kind { SEND, RECEIVE };

struct transfer {
    struct ncclComm *comm;
    cudaStream_t stream;
    enum kind kind;
    const void *from;
    void *to;
    size_t bytes;
    int peer;
};

/* A program with this fake finds NCCL in itself, unless told otherwise; a rank may be a thread, with a GPU of its own. */
__attribute__((constructor)) static void stand_in(void)
{
    setenv("SP_NCCL_LIBRARY", "", 0);
    setenv("SP_FAKE_GPUS", "4", 0);
}

static __thread const char *last = "";

static ncclResult_t refuse(const char *why)
{
    last = why;
    return ncclInvalidUsage;
}

static size_t setting(const char *name)
{
    const char *text = getenv(name);

    return text ? (size_t)atol(text) : 0;
}

/* ---- sockets ----------------------------------------------------------------------------------- */

static int is_aborted(const struct ncclComm *comm)
{
    return __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE);
}

static bool fails(struct ncclComm *comm, ncclResult_t why)
{
    __atomic_store_n(&comm->error, why, __ATOMIC_RELEASE);
    while (!is_aborted(comm)) /* as a kernel would */
        usleep(1000);
    return false;
}

/* Moves all bytes; false: this can never be done. */
static bool move(struct ncclComm *comm, int fd, void *data, size_t bytes, bool out)
{
    char *at = data;

    while (bytes > 0) {
        struct pollfd look = {.fd = fd, .events = out ? POLLOUT : POLLIN};
        ssize_t n = out ? send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                        : recv(fd, at, bytes, MSG_DONTWAIT);

        if (is_aborted(comm))
            return false;
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            return fails(comm, ncclRemoteError);
        } else {
            poll(&look, 1, 20);
        }
    }
    return true;
}

/* Stands still, until the other end is gone. */
static bool stand_still(struct ncclComm *comm, int fd)
{
    char byte;

    while (!is_aborted(comm) && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        usleep(1000);
    return is_aborted(comm) ? false : fails(comm, ncclRemoteError);
}

static void address(struct sockaddr_un *a, socklen_t *len, const char *id, int rank)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%.64s.%d", id, rank);
    *len = (socklen_t)sizeof *a;
}

/* Opens a socket to every other rank: a rank connects to those before it. */
static bool connect_all(struct ncclComm *comm, const char *id)
{
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a;
    socklen_t len;

    address(&a, &len, id, comm->rank);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, len) || listen(listener, comm->n))
        return false;
    for (int r = 0; r < comm->rank; r++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), tries = 20000;

        address(&a, &len, id, r);
        while (connect(fd, (struct sockaddr *)&a, len) && --tries)
            usleep(1000);
        if (!tries || !move(comm, fd, &comm->rank, sizeof comm->rank, true))
            return false;
        comm->fds[r] = fd;
    }
    for (int r = comm->rank + 1; r < comm->n; r++) {
        int fd = accept(listener, NULL, NULL), rank;

        if (fd < 0 || !move(comm, fd, &rank, sizeof rank, false))
            return false;
        comm->fds[rank] = fd;
    }
    close(listener);
    return true;
}

/* ---- transfers ---------------------------------------------------------------------------------- */

static bool run_send(struct transfer *t, int fd)
{
    uint64_t bytes = t->bytes;
    char ack;

    return move(t->comm, fd, &bytes, sizeof bytes, true) &&
           (bytes <= setting("FAKE_NCCL_EAGER") || move(t->comm, fd, &ack, 1, false)) &&
           move(t->comm, fd, (void *)(uintptr_t)t->from, t->bytes, true);
}

static bool run_receive(struct transfer *t, int fd)
{
    uint64_t bytes;
    char ack = 1;

    if (!move(t->comm, fd, &bytes, sizeof bytes, false))
        return false;
    if (bytes != t->bytes)
        return fails(t->comm, ncclInvalidUsage);
    return (bytes <= setting("FAKE_NCCL_EAGER") || move(t->comm, fd, &ack, 1, true)) &&
           move(t->comm, fd, t->to, t->bytes, false);
}

/* A kernel. */
static void CUDART_CB run(void *arg)
{
    struct transfer *t = arg;
    size_t late = setting("FAKE_NCCL_DELAY_US");
    bool ok = true;

    if (late)
        usleep((useconds_t)((size_t)rand_r(&t->comm->seed) % late));
    if (setting("FAKE_NCCL_STOP_AFTER") && t->comm->run++ >= setting("FAKE_NCCL_STOP_AFTER"))
        ok = stand_still(t->comm, t->comm->fds[!t->comm->rank]);
    else if (t->kind == SEND)
        ok = run_send(t, t->comm->fds[t->peer]);
    else
        ok = run_receive(t, t->comm->fds[t->peer]);
    free(t);
    if (!ok)
        sp_fake_kernel_hangs();
}

static ncclResult_t launch(struct transfer *t)
{
    return cudaLaunchHostFunc(t->stream, run, t) == cudaSuccess ? ncclSuccess
                                                                : ncclUnhandledCudaError;
}

/* ---- the part of NCCL ------------------------------------------------------------------------------ */

static ncclResult_t put(struct ncclComm *comm, enum kind kind, const void *from, void *to,
                        size_t bytes, int peer, cudaStream_t stream)
{
    struct transfer *t = calloc(1, sizeof *t);

    if (!t)
        return ncclSystemError;
    *t = (struct transfer){comm, stream, kind, from, to, bytes, peer};
    return peer == comm->rank ? refuse("a message to oneself") : launch(t);
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return type == ncclUint8 ? put(comm, SEND, buffer, NULL, count, peer, stream)
                             : refuse("fake: bytes only");
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return type == ncclUint8 ? put(comm, RECEIVE, NULL, buffer, count, peer, stream)
                             : refuse("fake: bytes only");
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = setting("FAKE_NCCL_VERSION") ? (int)setting("FAKE_NCCL_VERSION") : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int n;

    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "fake_nccl.%d.%d", (int)getpid(),
             __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *c = calloc(1, sizeof *c);

    *comm = NULL;
    if (!c || config->maxCTAs < 1)
        return refuse("fake: thread blocks are to be limited");
    *c = (struct ncclComm){
        .rank = rank, .n = n, .fds = calloc((size_t)n, sizeof(int)), .seed = (unsigned)rank + 1};
    if (!c->fds || (n > 1 && !connect_all(c, id.internal))) {
        last = "fake: the ranks did not meet";
        return ncclSystemError;
    }
    *comm = c;
    return ncclSuccess;
}

static void hang_up(struct ncclComm *comm)
{
    for (int r = 0; r < comm->n; r++)
        if (r != comm->rank)
            shutdown(comm->fds[r], SHUT_RDWR);
}

/* An aborted communicator is not freed, since its transfer may still read it. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    __atomic_store_n(&comm->aborted, 1, __ATOMIC_RELEASE);
    hang_up(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    for (int r = 0; r < comm->n; r++)
        if (r != comm->rank)
            close(comm->fds[r]);
    free(comm->fds);
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)__atomic_load_n(&comm->error, __ATOMIC_ACQUIRE);
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last;
}

const char *ncclGetErrorString(ncclResult_t error)
{
    return error == ncclRemoteError    ? "remote process exited or there was a network error"
           : error == ncclInvalidUsage ? "invalid usage"
                                       : "an error of the fake";
}
