/* For a build without NCCL: sp_nccl_load fails, so nothing else here is called. */
#include "config.h"
#ifndef HAVE_NCCL
#include "transport/nccl/nccl_device.h"
#include <errno.h>
#include <stdio.h>

int sp_nccl_load(const char *library, char *why, size_t n)
{
    (void)library;
    snprintf(why, n, "built without NCCL: configure --with-nccl");
    return -ELIBACC;
}

int sp_comm_use(int device)
{
    (void)device;
    return -ENOSYS;
}

int sp_comm_blocks(int links)
{
    return links;
}

int sp_comm_id(unsigned char id[SP_COMM_ID_BYTES])
{
    (void)id;
    return -ENOSYS;
}

int sp_comm_create(const unsigned char id[SP_COMM_ID_BYTES], bool sends, int blocks,
                   struct sp_comm **comm)
{
    (void)id, (void)sends, (void)blocks, (void)comm;
    return -ENOSYS;
}

void sp_comm_destroy(struct sp_comm *comm)
{
    (void)comm;
}

void sp_comm_abort(struct sp_comm *comm)
{
    (void)comm;
}

int sp_comm_send(struct sp_comm *comm, const void *data, size_t bytes)
{
    (void)comm, (void)data, (void)bytes;
    return -ENOSYS;
}

int sp_comm_receive(struct sp_comm *comm, void *data, size_t bytes)
{
    (void)comm, (void)data, (void)bytes;
    return -ENOSYS;
}

int sp_comm_test(struct sp_comm *comm)
{
    (void)comm;
    return -ENOSYS;
}

int sp_comm_check(struct sp_comm *comm)
{
    (void)comm;
    return -ENOSYS;
}
#endif
