/* For builds with a StarPU that runs rather than simulates. */
#include "config.h"
#ifndef HAVE_SIMGRID
#include "simulate/run.h"
#include <errno.h>

bool sp_can_simulate(void)
{
    return false;
}

int sp_sim_run(const struct sp_simulation *s, struct sp_simulated *out)
{
    (void)s, (void)out;
    return -ENOSYS;
}

void sp_simulated_destroy(struct sp_simulated *r)
{
    (void)r;
}
#endif
