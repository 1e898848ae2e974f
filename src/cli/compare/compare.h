/* The forms of `starpipe compare`. */
#ifndef SP_CLI_COMPARE_H
#define SP_CLI_COMPARE_H

#include "trace/analysis/waits.h"
#include <stdio.h>

/* A part of a stage's step in both records. */
struct sp_compared_part {
    int stage; /* -1: the mean of all */
    enum sp_part_of_step part;
    double time[2];
};

/* An op that both have. */
struct sp_compared_op {
    int op[2]; /* numbers in the records */
    double length[2], start[2];
};

struct sp_comparison {
    const struct sp_timeline *t[2];
    struct sp_waits waits[2];
    struct sp_compared_part *part;               /* [n_parts] of stages, largest difference first */
    struct sp_compared_part mean[SP_STEP_PARTS]; /* likewise */
    int n_parts;
    struct sp_compared_op *op; /* [n_ops] likewise, by length */
    int n_ops, alone[2];       /* ops that only one has */
};

/* 0 or -ENOMEM; nothing to be destroyed then. The records are of as many stages. */
int sp_comparison_make(const struct sp_timeline *a, const struct sp_timeline *b,
                       struct sp_comparison *c);
void sp_comparison_destroy(struct sp_comparison *c);

/* Each returns 0, or -errno after one line. */
int sp_compare_svg(const struct sp_comparison *c, FILE *out);
int sp_compare_html(const struct sp_comparison *c, FILE *out);

#endif
