#include "cli/train/typical_step.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int compare_durations(const void *x, const void *y)
{
    const double *a = x, *b = y;

    return *a != *b ? (*a < *b ? -1 : 1) : 0;
}

void sp_typical_range(const struct sp_typical *t, double *least, double *median, double *most)
{
    double us[SP_TYPICAL_STEPS];

    *least = *median = *most = 0;
    if (!t->n)
        return;
    memcpy(us, t->us, sizeof us);
    qsort(us, (size_t)t->n, sizeof *us, compare_durations);
    *least = us[0];
    *median = us[(t->n - 1) / 2]; /* of one of them */
    *most = us[t->n - 1];
}

/* How little the kept step k stands for the last ones: infinite if it is not among them. */
static double distance_to_median(const struct sp_typical *t, int k, double median)
{
    bool among = t->kept[k].seen > 0 && t->kept[k].seen > t->seen - t->n;

    return among ? fabs(t->kept[k].us - median) : INFINITY;
}

int sp_typical_offer(struct sp_typical *t, int step, double us)
{
    double least, median, most, worst = -1;
    int at = 0;

    if (t->seen == SP_TYPICAL_WARM_UP) {
        t->from = t->seen;
        t->n = 0;
    }
    t->us[(t->seen++ - t->from) % SP_TYPICAL_STEPS] = us;
    t->n += t->n < SP_TYPICAL_STEPS;
    sp_typical_range(t, &least, &median, &most);
    for (int k = 0; k < SP_TYPICAL_KEPT; k++)
        if (distance_to_median(t, k, median) > worst) {
            worst = distance_to_median(t, k, median);
            at = k;
        }
    if (fabs(us - median) > worst)
        return -1;
    t->kept[at].seen = t->seen;
    t->kept[at].step = step;
    t->kept[at].us = us;
    return at;
}

int sp_typical_best(const struct sp_typical *t)
{
    double least, median, most, nearest = INFINITY;
    int best = -1;

    sp_typical_range(t, &least, &median, &most);
    for (int k = 0; k < SP_TYPICAL_KEPT; k++)
        if (distance_to_median(t, k, median) < nearest) {
            nearest = distance_to_median(t, k, median);
            best = k;
        }
    return best;
}
