/* Finds the critical path of a step: from its last op back to its beginning, through the event that
 * each op waited for last. */
#ifndef SP_PATH_H
#define SP_PATH_H

#include "trace/analysis/waits.h"
#include <stdio.h>

struct sp_path {
    double part[SP_STEP_PARTS]; /* they add up to the span */
    double *compute;            /* [stages] part[SP_STEP_COMPUTE] of each */
    int n, messages;            /* units, messages between processes */
    int *unit;                  /* [n] the first one first */
};

/* Finds the path. 0 or -ENOMEM. */
int sp_path_find(const struct sp_waits *w, struct sp_path *p);
void sp_path_destroy(struct sp_path *p);

/* Prints the path as a paragraph in one line. */
void sp_path_print(const struct sp_waits *w, const struct sp_path *p, FILE *out);

#endif
