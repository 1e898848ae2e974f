/*
 * The transport over MPI. StarPU-MPI is started because it tells StarPU about the world (ranks,
 * clocks of traces); the messages are our own (messages.h), unless --transport starpu asks for its.
 */
#include "config.h"
#ifdef HAVE_MPI
#include "transport/beats.h"
#include "transport/last_seconds.h"
#include "transport/launcher.h"
#include "transport/messages.h"
#include "transport/nccl/nccl.h"
#include "transport/starpu_environment.h"
#include "transport/starpu_messages.h"
#include "transport/trace_dir.h"
#include "transport/post.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <mpi.h>
#include <starpu_mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool joined, ours; /* this process is part of MPI; MPI was initialised here */
static struct sp_world self = {.size = 1, .node_size = 1};
static uint64_t bytes_sent;
static struct sp_nccl *nccl;              /* NULL: all messages go over MPI */
static bool wants_starpu, through_starpu; /* from the next start on; now */

void sp_transport_prepare_nccl(void)
{
    sp_nccl_prepare(2 * (self.size - 1));
}

int sp_transport_use_nccl(unsigned node, int device, bool wanted)
{
    struct sp_nccl_config cfg = {.node = node, .device = device, .fail = sp_transport_abort};
    struct sp_wire *wire;
    char why[256] = "";
    int err;

    if (self.size == 1)
        return 0;
    err = sp_wire_mpi(&wire, why, sizeof why);
    if (!err) {
        err = sp_nccl_start(&cfg, wire, why, sizeof why, &nccl);
        if (err)
            wire->close(wire);
    }
    if (err && wanted && *why)
        sp_error(-err, "--transport nccl: %s", why);
    return wanted ? err : 0;
}

int sp_transport_use_starpu(bool on)
{
    int level = MPI_THREAD_MULTIPLE;

    wants_starpu = on && self.size > 1;
    if (!wants_starpu)
        return 0;
    sp_mpi_lock();
    MPI_Query_thread(&level);
    sp_mpi_unlock();
    if (level >= MPI_THREAD_MULTIPLE)
        return 0;
    return sp_error(ENOTSUP,
                    "--transport starpu: StarPU-MPI has a thread of its own, so MPI must be "
                    "initialised with MPI_THREAD_MULTIPLE (%d), not %d; take --transport mpi",
                    MPI_THREAD_MULTIPLE, level);
}

/* Unsets a TMPDIR that cannot be written, because Open MPI would end the process. 0 or -ENOMEM. */
static int leave_out_tmpdir(void)
{
    const char *dir = getenv("TMPDIR");
    struct stat st;

    if (!dir || (!stat(dir, &st) && S_ISDIR(st.st_mode) && !access(dir, W_OK | X_OK)))
        return 0;
    sp_warn("TMPDIR=%s is no directory that can be written; left out", dir);
    return sp_starpu_environment_change("TMPDIR", NULL);
}

/* Uses MPI as the program initialised it, or initialises it after a launcher. *there: there is
 * MPI. 0 or -errno. */
static int find_mpi(const struct sp_launcher *launcher, int *argc, char ***argv, int *there)
{
    const int wanted = MPI_THREAD_MULTIPLE; /* for NCCL's notes, and StarPU-MPI's thread */
    int level, ended, err = MPI_SUCCESS;

    MPI_Initialized(there);
    MPI_Finalized(&ended);
    if (!*there && launcher->size == 0)
        return 0;
    if (ended)
        return sp_error(EINVAL,
                        "MPI has been finalised: to open another trainer, initialise MPI in "
                        "the program");
    ours = !*there;
    if (ours && leave_out_tmpdir())
        return -ENOMEM;
    err = ours ? MPI_Init_thread(argc, argv, wanted, &level) : MPI_Query_thread(&level);
    if (err != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED)
        return sp_error(EIO, "MPI gives thread level %d, serialized (%d) is needed", level,
                        MPI_THREAD_SERIALIZED);
    *there = 1;
    return 0;
}

/* Reads ranks and sizes from MPI. */
static void look_around(void)
{
    MPI_Comm node;

    sp_mpi_lock();
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &self.node_rank);
    MPI_Comm_size(node, &self.node_size);
    MPI_Comm_free(&node);
    sp_mpi_unlock();
    joined = true;
}

int sp_transport_join(int *argc, char ***argv, struct sp_world *world)
{
    struct sp_launcher launcher = sp_launcher_find();
    int there = 0, err = 0;

    sp_error_end_by(sp_transport_abort);
    if (!joined)
        err = find_mpi(&launcher, argc, argv, &there);
    if (err) {
        sp_starpu_environment_restore();
        return err;
    }
    if (there) {
        look_around();
        if (self.size == 1 && launcher.size > 1) {
            err = sp_launcher_refuse(&launcher, sp_transport_version());
            sp_transport_leave();
            return err;
        }
        err = sp_beats_start(MPI_COMM_WORLD);
        if (err)
            return err;
    }
    *world = self;
    return 0;
}

static int no_worker(void)
{
    return sp_error(ENODEV, "StarPU found no worker to start");
}

/* All processes call this, after a barrier. */
static int start_with_mpi(struct starpu_conf *conf)
{
    int err;

    sp_mpi_lock();
    if (starpu_mpi_init_conf(NULL, NULL, 0, MPI_COMM_WORLD, conf)) {
        err = no_worker();
    } else {
        sp_message_log_start(MPI_COMM_WORLD);
        err = sp_messages_start(MPI_COMM_WORLD);
        if (!err && through_starpu)
            sp_starpu_messages_start(MPI_COMM_WORLD);
    }
    sp_mpi_unlock();
    return err;
}

int sp_transport_start(struct starpu_conf *conf)
{
    int err = sp_trace_dir(self.rank);

    if (!err && !joined) {
        err = starpu_init(conf) ? no_worker() : 0;
    } else if (!err) {
        /* StarPU-MPI's thread would run tasks between its polls, and would never sleep without
         * any */
        err = sp_starpu_environment_change("STARPU_MPI_DRIVER_CALL_FREQUENCY", "0");
        through_starpu = wants_starpu;
        if (!err && through_starpu)
            err = sp_starpu_messages_prepare();
        sp_mpi_exchange_beats();
        err = err ? err : start_with_mpi(conf);
    }
    if (err)
        sp_starpu_environment_restore();
    else
        sp_starpu_environment_started();
    return err;
}

void sp_transport_stop(void)
{
    if (nccl)
        sp_nccl_stop(nccl);
    nccl = NULL;
    if (joined) {
        sp_mpi_exchange_beats();
        sp_messages_stop();
        sp_mpi_lock();
        sp_message_log_stop(MPI_COMM_WORLD);
        starpu_mpi_shutdown();
        if (through_starpu)
            sp_starpu_messages_stop();
        through_starpu = false;
        sp_mpi_unlock();
    } else {
        starpu_shutdown();
    }
    sp_starpu_environment_restore();
}

void sp_transport_leave(void)
{
    bool ends = joined && ours;

    if (joined)
        sp_beats_stop();
    joined = false; /* from here on a process that gives up leaves MPI as it is */
    if (ends)
        MPI_Finalize();
    sp_starpu_environment_restore(); /* in case StarPU was not started */
}

/* MPI itself may hang: then the process leaves without it, and its launcher sees that. */
void sp_transport_abort(int status)
{
    bool leaves = sp_last_seconds(status);

    sp_starpu_environment_remove();
    if (joined && leaves)
        MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}

void sp_transport_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                       struct sp_transfer *times)
{
    __atomic_add_fetch(&bytes_sent, starpu_data_get_size(handle), __ATOMIC_RELAXED);
    if (nccl) {
        sp_nccl_send(nccl, handle, dst, tag);
        return;
    }
    (through_starpu ? sp_starpu_messages_send : sp_messages_send)(handle, dst, tag, name, times);
}

void sp_transport_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                       void (*arrived)(void *arg), void *arg)
{
    if (nccl) {
        sp_nccl_recv(nccl, handle, src, tag, arrived, arg);
        return;
    }
    (through_starpu ? sp_starpu_messages_recv : sp_messages_recv)(handle, src, tag, times, arrived,
                                                                  arg);
}

/* Passes data from rank 0 to each other rank in turn, or from each of them to rank 0. Not by
 * collective calls, because only the thread for messages may call MPI now. */
static void pass(void *data, size_t bytes, int64_t tag, const char *name, bool from_root)
{
    starpu_data_handle_t handle;

    if (self.size == 1)
        return;
    starpu_vector_data_register(&handle, STARPU_MAIN_RAM, (uintptr_t)data, (uint32_t)bytes, 1);
    starpu_data_set_name(handle, name);
    for (int r = 1; r < self.size; r++) {
        if (self.rank != 0 && self.rank != r)
            continue;
        if ((self.rank == 0) == from_root)
            sp_transport_send_wait(handle, self.rank ? 0 : r, tag);
        else
            sp_transport_recv_wait(handle, self.rank ? 0 : r, tag);
    }
    starpu_data_unregister(handle);
}

void sp_transport_share(void *data, size_t bytes)
{
    pass(data, bytes, SP_TAG_SHARE, "shared", true);
}

void sp_transport_barrier(void)
{
    char here = 0;

    pass(&here, 1, SP_TAG_BARRIER, "barrier", false);
    sp_transport_share(&here, 1);
}

void sp_transport_wait_all(void)
{
    if (nccl && sp_nccl_wait_all(nccl))
        sp_transport_abort(1);
    if (self.size > 1)
        sp_activity_wait(SP_ANY_RANK);
    if (through_starpu)
        sp_starpu_messages_wait_all();
    if (joined)
        sp_messages_wait_all();
    starpu_task_wait_for_all();
    if (self.size > 1)
        sp_activity_waited();
}

/* For collective calls before StarPU starts; beats go on meanwhile. */
static void reduce(void *data, int n, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;

    if (!joined)
        return;
    sp_mpi_lock();
    MPI_Iallreduce(MPI_IN_PLACE, data, n, type, op, MPI_COMM_WORLD, &request);
    sp_mpi_unlock();
    sp_mpi_wait(&request);
}

static void broadcast(void *data, int n, MPI_Datatype type)
{
    MPI_Request request;

    sp_mpi_lock();
    MPI_Ibcast(data, n, type, 0, MPI_COMM_WORLD, &request);
    sp_mpi_unlock();
    sp_mpi_wait(&request);
}

int sp_transport_agree(int status, int *first)
{
    *first = status ? self.rank : self.size;
    reduce(first, 1, MPI_INT, MPI_MIN);
    return *first < self.size;
}

char *sp_transport_root_text(const char *text)
{
    unsigned long n = strlen(text) + 1;
    char *root;

    if (!joined)
        return strdup(text);
    broadcast(&n, 1, MPI_UNSIGNED_LONG);
    root = malloc(n);
    if (!root)
        sp_transport_abort(1);
    if (self.rank == 0)
        memcpy(root, text, n);
    broadcast(root, (int)n, MPI_CHAR);
    return root;
}

bool sp_transport_same(uint64_t value)
{
    uint64_t most[2] = {value, ~value}; /* the complement of the least */

    reduce(most, 2, MPI_UINT64_T, MPI_MAX);
    return most[0] == ~most[1];
}

double sp_transport_polling_us(void)
{
    return (joined ? sp_messages_polling_us() : 0) + (nccl ? sp_nccl_polling_us(nccl) : 0) +
           sp_starpu_messages_polling_us();
}

bool sp_transport_counts_in_int(void)
{
    return true;
}

uint64_t sp_transport_bytes_sent(void)
{
    return __atomic_load_n(&bytes_sent, __ATOMIC_RELAXED);
}

const char *sp_transport_version(void)
{
    static char text[160];
    char lib[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;

    MPI_Get_library_version(lib, &len);
    snprintf(text, sizeof text, "%s%.*s", wants_starpu ? "StarPU-MPI over " : "",
             (int)strcspn(lib, ",\n"), lib);
    return text;
}
#endif
