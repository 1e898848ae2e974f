/* A window of a zero-bubble order, in which ops are free to change places. */
#ifndef SP_ZBWINDOW_H
#define SP_ZBWINDOW_H

#include "policies/search/zbauto.h"

struct sp_zb_op {
    int s, i, pass, mb;      /* stage, place in its word, enum sp_pass, micro-batch */
    double cost, head, tail; /* earliest start; time from the start to the end, own cost included */
};

struct sp_zb_window {
    struct sp_zb *zb;
    const unsigned char *words; /* [p][n] */
    double t0, t1;              /* ops that start in between are free */
    double *tail;               /* [p][n] in the present order */
    int n, ops_cap;
    struct sp_zb_op *ops; /* [ops_cap] the free ones, by stage and in the present order */
};

/* Plays the words and lists the free ops; false if they are too many, or none. Sets *least, which
 * no order of them ends before: the latest end of a stage less what is due to it. */
bool sp_zb_window(struct sp_zb_window *w, double *least);

/* Whether a comes before b, of the same stage, in every legal order. */
bool sp_zb_implied(const struct sp_zb *zb, const struct sp_zb_op *a, const struct sp_zb_op *b);

/* Time by which the start of b follows that of a at least; negative: it need not follow. */
double sp_zb_follows(const struct sp_zb *zb, const struct sp_zb_op *a, const struct sp_zb_op *b);

#endif
