#include "config.h"
#ifdef HAVE_NCCL
#include "transport/nccl/nccl_device.h"
#include "sp_error.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NCCL before 2.18 does not heed a communicator's limit on thread blocks. */
enum { OLDEST = NCCL_VERSION(2, 18, 1) };

#define FUNCTIONS(X)                                                                               \
    X(GetVersion)                                                                                  \
    X(GetUniqueId)                                                                                 \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(CommInitRankConfig)                                                                          \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(CommGetAsyncError)                                                                           \
    X(Send)                                                                                        \
    X(Recv)

#define MEMBER(f) __typeof__(nccl##f) *f;
static struct {
    FUNCTIONS(MEMBER)
    int version; /* 0: not loaded */
} nccl;

/* Members of a communicator. */
enum { SENDER, RECEIVER };

struct sp_comm {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t done[SP_COMM_DEPTH]; /* message number i has [i % SP_COMM_DEPTH] */
    unsigned begun, tested;          /* messages so far */
    int aborted;
};

/* ---- errors -------------------------------------------------------------------------------- */

static int cuda(cudaError_t err, const char *what)
{
    if (err == cudaSuccess)
        return 0;
    return sp_error(EIO, "%s: %s", what, cudaGetErrorString(err));
}

/* NCCL describes its last error in a line of its own; the code only gives the kind. */
static int check(ncclResult_t res, ncclComm_t comm, const char *what)
{
    const char *words;
    int n;

    if (res == ncclSuccess)
        return 0;
    words = nccl.GetLastError(comm);
    n = words ? (int)strcspn(words, "\n") : 0;
    return sp_error(EIO, "%s: %s%s%.*s", what, nccl.GetErrorString(res), n ? ": " : "", n,
                    n ? words : "");
}

/* ---- the library --------------------------------------------------------------------------- */

#define LOOK_UP(f)                                                                                 \
    *(void **)&nccl.f = dlsym(lib, "nccl" #f);                                                     \
    if (!nccl.f)                                                                                   \
        missing = "nccl" #f;

static int load(const char *library, char *why, size_t n)
{
    const char *missing = NULL;
    int version = 0;
    void *lib = dlopen(*library ? library : NULL, RTLD_NOW | RTLD_LOCAL);

    if (!lib) {
        const char *reason = dlerror();

        snprintf(why, n, "NCCL cannot be loaded: %s", reason ? reason : library);
        return -ELIBACC;
    }
    FUNCTIONS(LOOK_UP)
    if (nccl.GetVersion)
        nccl.GetVersion(&version);
    if (missing || version < OLDEST) {
        snprintf(why, n, "%s is NCCL %d, at least %d is needed%s%s", library, version, OLDEST,
                 missing ? ": it has no " : "", missing ? missing : "");
        dlclose(lib);
        return -ELIBACC;
    }
    return nccl.version = version;
}

int sp_nccl_load(const char *library, char *why, size_t n)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int version;

    if (!library)
        library = getenv("SP_NCCL_LIBRARY");
    pthread_mutex_lock(&mutex);
    version = nccl.version ? nccl.version : load(library ? library : "libnccl.so.2", why, n);
    pthread_mutex_unlock(&mutex);
    return version;
}

int sp_comm_use(int device)
{
    return cuda(cudaSetDevice(device), "cudaSetDevice");
}

int sp_comm_id(unsigned char id[SP_COMM_ID_BYTES])
{
    ncclUniqueId made;
    int err = check(nccl.GetUniqueId(&made), NULL, "ncclGetUniqueId");

    if (!err)
        memcpy(id, made.internal, SP_COMM_ID_BYTES);
    return err;
}

/* ---- communicators -------------------------------------------------------------------------- */

int sp_comm_blocks(int links)
{
    int n = 16; /* the fastest links of today need so many */

    while (n > 1 && n * links > 64)
        n /= 2;
    return n;
}

/* Makes a stream that waits for no other, and whose kernels start before those that compute. */
static int make_stream(struct sp_comm *c)
{
    int least, greatest, err;

    err = cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
    if (!err)
        err = cuda(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest),
                   "cudaStreamCreateWithPriority");
    for (int i = 0; !err && i < SP_COMM_DEPTH; i++)
        err = cuda(cudaEventCreateWithFlags(&c->done[i], cudaEventDisableTiming),
                   "cudaEventCreateWithFlags");
    return err;
}

static int warm_up(struct sp_comm *c, bool sends)
{
    enum { BYTES = 256 };
    void *buffer = NULL;
    int err = cuda(cudaMalloc(&buffer, BYTES), "cudaMalloc");

    if (err)
        return err;
    err = sends ? sp_comm_send(c, buffer, BYTES) : sp_comm_receive(c, buffer, BYTES);
    if (!err)
        err = cuda(cudaStreamSynchronize(c->stream), "the first message");
    if (!err)
        err = sp_comm_test(c) == 1 ? 0 : -EIO;
    cudaFree(buffer);
    return err;
}

int sp_comm_create(const unsigned char id[SP_COMM_ID_BYTES], bool sends, int blocks,
                   struct sp_comm **comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct sp_comm *c = calloc(1, sizeof *c);
    ncclUniqueId unique;
    int err;

    if (!c)
        return sp_error(ENOMEM, "out of memory for a communicator");
    memcpy(unique.internal, id, SP_COMM_ID_BYTES);
    config.maxCTAs = blocks;
    err = make_stream(c);
    if (!err)
        err =
            check(nccl.CommInitRankConfig(&c->comm, 2, unique, sends ? SENDER : RECEIVER, &config),
                  NULL, "ncclCommInitRank");
    if (!err)
        err = warm_up(c, sends);
    if (err) {
        sp_comm_abort(c);
        sp_comm_destroy(c);
        return err;
    }
    *comm = c;
    return 0;
}

void sp_comm_abort(struct sp_comm *c)
{
    if (c->comm && !__atomic_exchange_n(&c->aborted, 1, __ATOMIC_ACQ_REL))
        nccl.CommAbort(c->comm);
}

void sp_comm_destroy(struct sp_comm *c)
{
    if (!c)
        return;
    if (c->comm && !c->aborted)
        check(nccl.CommDestroy(c->comm), c->comm, "ncclCommDestroy");
    for (int i = 0; i < SP_COMM_DEPTH; i++)
        if (c->done[i])
            cudaEventDestroy(c->done[i]);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    free(c);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Records an event after a message; the event tells when the message is done. */
static int put(struct sp_comm *c, int err)
{
    if (!err)
        err =
            cuda(cudaEventRecord(c->done[c->begun % SP_COMM_DEPTH], c->stream), "cudaEventRecord");
    c->begun++;
    return err;
}

int sp_comm_send(struct sp_comm *c, const void *data, size_t bytes)
{
    return put(c, check(nccl.Send(data, bytes, ncclUint8, RECEIVER, c->comm, c->stream), c->comm,
                        "ncclSend"));
}

int sp_comm_receive(struct sp_comm *c, void *data, size_t bytes)
{
    return put(c, check(nccl.Recv(data, bytes, ncclUint8, SENDER, c->comm, c->stream), c->comm,
                        "ncclRecv"));
}

int sp_comm_test(struct sp_comm *c)
{
    cudaError_t err = cudaEventQuery(c->done[c->tested % SP_COMM_DEPTH]);

    if (err == cudaErrorNotReady)
        return 0;
    if (err != cudaSuccess)
        return cuda(err, "a message between GPUs");
    c->tested++;
    return 1;
}

int sp_comm_check(struct sp_comm *c)
{
    ncclResult_t state = ncclSuccess;
    int err = check(nccl.CommGetAsyncError(c->comm, &state), c->comm, "ncclCommGetAsyncError");

    if (err || state == ncclInProgress)
        return err;
    return check(state, c->comm, "a message between GPUs");
}
#endif
