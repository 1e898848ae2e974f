/*
 * Replays a step from its record, in the order of submission. With all its waits it takes as long
 * as it did; without one cause, as long as it would have. Pure.
 */
#ifndef SP_REPLAY_H
#define SP_REPLAY_H

#include "trace/analysis/waits.h"

struct sp_replay {
    unsigned with; /* bits of enum sp_part_of_step to include; computing always is. CORE: stages
                    * take turns on the workers that they share, and tasks wait for cores */
    const double *compute; /* [units] their computing times; NULL: as recorded */
    const double *part; /* [ops] part of the unit after which output is there; NULL: as recorded */
    double *start;      /* [units] set unless NULL */
    double *end;        /* likewise */
};

enum { SP_REPLAY_ALL = (1 << SP_STEP_PARTS) - 1 };

/* The part of its unit after which an op had written its output. */
double sp_replay_part(const struct sp_waits *w, int op);

/* Sets *makespan to the end of the last op. 0 or -ENOMEM. */
int sp_replay(const struct sp_waits *w, const struct sp_replay *how, double *makespan);

#endif
