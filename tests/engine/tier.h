/* StarPU with workers and a disk tier, for tests of what leaves memory. */
#ifndef SP_TESTS_ENGINE_TIER_H
#define SP_TESTS_ENGINE_TIER_H

#include "engine/support.h"
#include "offload/disk.h"
#include "offload/host.h"

static struct sp_disk *disk;
static unsigned tier;

static inline int start_tier(int workers, int64_t bytes)
{
    sp_host_start(1 << 20, false);
    start_starpu(workers, &sp_order_strict);
    assert_int_equal(sp_disk_create("/var/tmp", bytes, _exit, &disk), 0);
    tier = (unsigned)sp_disk_register(disk);
    return 0;
}

static inline int stop_tier(void **state)
{
    (void)state;
    starpu_shutdown();
    sp_disk_destroy(disk);
    sp_host_stop();
    return 0;
}

#endif
