#include "train/calibrate/steady.h"
#include <math.h>
#include <string.h>

static const double tolerance = 0.05;

void sp_steady_add(struct sp_steady *s, double sample)
{
    int at = s->n++;

    for (; at > 0 && s->sorted[at - 1] > sample; at--)
        s->sorted[at] = s->sorted[at - 1];
    s->sorted[at] = sample;
}

double sp_steady_median(const struct sp_steady *s)
{
    return 0.5 * (s->sorted[(s->n - 1) / 2] + s->sorted[s->n / 2]);
}

/* The median of n samples is the x-th of many, where half of them lie below: x is n/2 give or take
 * sqrt(n)/2, and twice that for 95 %. */
bool sp_steady_reached(const struct sp_steady *s)
{
    int reach = (int)floor(sqrt(s->n)), low = s->n / 2 - reach, high = (s->n - 1) / 2 + reach;
    double median = sp_steady_median(s);

    if (s->n < SP_STEADY_LEAST || low < 0 || high >= s->n)
        return false;
    return s->sorted[high] - median <= tolerance * median &&
           median - s->sorted[low] <= tolerance * median;
}
