/* The transport of a build without MPI: one process. */
#include "config.h"
#if !defined(HAVE_MPI) && !defined(HAVE_SIMGRID)
#include "sp_error.h"
#include "transport/starpu_environment.h"
#include "transport/trace_dir.h"
#include "transport/post.h"
#include "transport/last_seconds.h"
#include "transport/launcher.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sp_transport_join(int *argc, char ***argv, struct sp_world *world)
{
    struct sp_launcher launcher = sp_launcher_find();

    (void)argc, (void)argv;
    sp_error_end_by(sp_transport_abort);
    if (launcher.size > 1)
        return sp_launcher_refuse(&launcher, NULL);
    *world = (struct sp_world){.size = 1, .node_size = 1};
    return 0;
}

int sp_transport_start(struct starpu_conf *conf)
{
    int err = sp_trace_dir(0);

    if (!err && starpu_init(conf))
        err = sp_error(ENODEV, "StarPU found no worker to start");
    if (err)
        sp_starpu_environment_restore();
    else
        sp_starpu_environment_started();
    return err;
}

void sp_transport_crowded(bool crowded)
{
    (void)crowded;
}

void sp_transport_prepare_nccl(void)
{
}

int sp_transport_use_nccl(unsigned node, int device, bool wanted)
{
    (void)node, (void)device, (void)wanted;
    return 0; /* there are no messages */
}

int sp_transport_use_starpu(bool on)
{
    return on ? sp_error(ENOSYS, "--transport starpu: built without MPI, so there is no "
                                 "StarPU-MPI; take --transport auto")
              : 0;
}

void sp_transport_stop(void)
{
    starpu_shutdown();
    sp_starpu_environment_restore();
}

void sp_transport_leave(void)
{
    sp_starpu_environment_restore(); /* in case StarPU was not started */
}

void sp_transport_abort(int status)
{
    sp_last_seconds(status);
    sp_starpu_environment_remove();
    _exit(status);
}

static void no_peer(void)
{
    sp_error(ENOSYS, "internal: a message in a build without MPI");
    abort();
}

bool sp_transport_records(void)
{
    return false;
}

void sp_transport_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                       struct sp_transfer *times)
{
    (void)handle, (void)dst, (void)tag, (void)name, (void)times;
    no_peer();
}

void sp_transport_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                       void (*arrived)(void *arg), void *arg)
{
    (void)arrived, (void)arg;
    sp_transport_send(handle, src, tag, "", times);
}

void sp_transport_send_wait(starpu_data_handle_t handle, int dst, int64_t tag)
{
    sp_transport_send(handle, dst, tag, "", NULL);
}

void sp_transport_recv_wait(starpu_data_handle_t handle, int src, int64_t tag)
{
    sp_transport_send(handle, src, tag, "", NULL);
}

void sp_transport_share(void *data, size_t bytes)
{
    (void)data, (void)bytes;
}

void sp_transport_barrier(void)
{
}

void sp_transport_wait_all(void)
{
    starpu_task_wait_for_all();
}

int sp_transport_agree(int status, int *first)
{
    *first = 0;
    return status;
}

char *sp_transport_root_text(const char *text)
{
    return strdup(text);
}

bool sp_transport_same(uint64_t value)
{
    (void)value;
    return true;
}

double sp_transport_polling_us(void)
{
    return 0;
}

bool sp_transport_counts_in_int(void)
{
    return false;
}

uint64_t sp_transport_bytes_sent(void)
{
    return 0;
}

const char *sp_transport_version(void)
{
    return "one process (built without MPI)";
}
#endif
