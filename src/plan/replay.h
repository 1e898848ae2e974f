/*
 * A step played again from the times of its ops, in the order of submission: what a list simulation
 * says of a run, with the workers and the messages of that run where they are wanted.
 */
#ifndef SP_REPLAY_H
#define SP_REPLAY_H

#include "policies/simulation/times.h"

/* Arrays of ops go by the number that the family gives an op; times in milliseconds. */
struct sp_replay {
    const double *ms;    /* [ids] what an op takes */
    const double *part;  /* [ids] after this part of it (of the two, where they overlap) others have
                          * what they wait for; NULL: at its end */
    const int *worker;   /* [stages] stages of one number take turns; NULL: each has its own */
    const double *delay; /* [ids] of messages from other processes to an op; NULL: they take none */
    const int *process;  /* [stages]; used where there are delays */
};

/* Starts and ends of all ops, and what follows from them. 0, -ENOMEM, or -EDEADLK: there is no order
 * of submission, or none that the workers can follow. */
int sp_replay_times(const struct sp_plan *plan, const struct sp_replay *replay,
                    struct sp_times *times);

#endif
