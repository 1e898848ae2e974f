/*
 * Which step of a run stands for it: the one whose duration is the median of the last steps, not
 * the last one, which may be anything. Reports are too large to keep them all, so the caller keeps
 * those of a few steps, chosen as the run goes on.
 */
#ifndef SP_TYPICAL_STEP_H
#define SP_TYPICAL_STEP_H

enum {
    SP_TYPICAL_STEPS = 31, /* that the median is of */
    SP_TYPICAL_KEPT = 4,   /* whose reports are kept: one may grow too old, or prove an outlier */
    SP_TYPICAL_WARM_UP = 3 /* first steps, which count only in a run that has no others */
};

struct sp_typical {
    int seen, from;              /* steps in all, the first that counts */
    int n;                       /* of the array below */
    double us[SP_TYPICAL_STEPS]; /* durations of the last steps, in turns */
    struct {
        int seen, step; /* `seen` 0: none */
        double us;
    } kept[SP_TYPICAL_KEPT];
};

/* A step took so many microseconds: where its report is to be kept, in place of another one's; -1:
 * nowhere. All zeroes is a run that begins. */
int sp_typical_offer(struct sp_typical *t, int step, double us);

/* Which of the kept is nearest to the median of the last steps; -1: none. */
int sp_typical_best(const struct sp_typical *t);

/* Shortest, median and longest of the last steps. */
void sp_typical_range(const struct sp_typical *t, double *least, double *median, double *most);

#endif
