/*
 * The files that describe a machine to StarPU-SimGrid: a platform for SimGrid, with a host for the
 * main program and one for each rank, and the bus that StarPU would have measured.
 */
#ifndef SP_SIMULATE_PLATFORM_H
#define SP_SIMULATE_PLATFORM_H

#include "simulate/machine.h"

struct sp_platform {
    char dir[64]; /* directory of the files, made for this run; "": none */
};

/*
 * Writes the files for `ranks` ranks, with times `stretch` times as long, and points StarPU's
 * environment at them. Links that queue their messages have no latency here: network.c adds it. 0,
 * or -errno after one line.
 */
int sp_platform_create(struct sp_platform *p, const struct sp_sim_machine *m, int ranks,
                       double stretch);
void sp_platform_destroy(struct sp_platform *p);

/* The host of a rank, as the platform names it. */
#define SP_PLATFORM_RANK "CPU%d"

#endif
