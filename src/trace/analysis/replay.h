/*
 * A step played again from its record, in the order of submission: with all that it waited for it takes as long
 * as it did; without one cause, as long as it would have. Pure.
 */
#ifndef SP_REPLAY_H
#define SP_REPLAY_H

#include "trace/analysis/waits.h"

struct sp_replay {
    unsigned with; /* bit of each enum sp_part_of_step that is there; computing always is. CORE:
                            * stages take turns on the workers that they share, and tasks wait for cores */
    const double *compute; /* [units] what they compute; NULL: as recorded */
    const double
        *part;     /* [ops] after which part of the unit others have what they wait for; NULL: as
                            * recorded */
    double *start; /* [units] filled in, if it is not NULL */
    double *end;   /* likewise */
};

enum { SP_REPLAY_ALL = (1 << SP_STEP_PARTS) - 1 };

/* After which part of its unit an op had written what others wait for. */
double sp_replay_part(const struct sp_waits *w, int op);

/* Until the last op ends. 0 or -ENOMEM. */
int sp_replay(const struct sp_waits *w, const struct sp_replay *how, double *makespan);

#endif
