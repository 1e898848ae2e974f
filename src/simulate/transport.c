/* The functions of the transport (transport/transport.h) other than messages, for one process. */
#include "config.h"
#ifdef HAVE_SIMGRID
#include "sp_error.h"
#include "transport/trace_dir.h"
#include "transport/post.h"
#include <string.h>
#include <unistd.h>

int sp_transport_join(int *argc, char ***argv, struct sp_world *world)
{
    (void)argc, (void)argv, (void)world;
    return sp_error(ENOSYS,
                    "this program simulates and computes nothing: train with build/starpipe");
}

int sp_transport_start(struct starpu_conf *conf)
{
    int err = sp_trace_dir(0);

    if (!err && starpu_init(conf))
        err = sp_error(ENODEV, "StarPU found no worker to start");
    return err;
}

void sp_transport_stop(void)
{
    starpu_shutdown();
}

void sp_transport_leave(void)
{
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
    return 0;
}

int sp_transport_use_starpu(bool on)
{
    (void)on;
    return 0;
}

void sp_transport_abort(int status)
{
    _exit(status);
}

/* For reports and checkpoints, which a simulated run does not have. */
void sp_transport_send_wait(starpu_data_handle_t handle, int dst, int64_t tag)
{
    sp_transport_send(handle, dst, tag, "", NULL);
    sp_transport_wait_all();
}

void sp_transport_recv_wait(starpu_data_handle_t handle, int src, int64_t tag)
{
    sp_transport_recv(handle, src, tag, NULL, NULL, NULL);
    sp_transport_wait_all();
}

void sp_transport_share(void *data, size_t bytes)
{
    (void)data, (void)bytes;
}

void sp_transport_barrier(void)
{
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

const char *sp_transport_version(void)
{
    return "simulated";
}
#endif
