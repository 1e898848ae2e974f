#include "train/calibrate/steady.h"
#include <math.h>
#include <string.h>

static const double tolerance = 0.05, most_doubt = 0.5;

static void note_fastest(struct sp_steady *s, double sample)
{
    if (s->n + s->disturbed == 0 || sample < s->fastest)
        s->fastest = sample;
}

void sp_steady_add(struct sp_steady *s, double sample)
{
    int at = s->n;

    note_fastest(s, sample);
    if (s->n == SP_STEADY_MOST)
        return;
    for (s->n++; at > 0 && s->sorted[at - 1] > sample; at--)
        s->sorted[at] = s->sorted[at - 1];
    s->sorted[at] = sample;
}

void sp_steady_disturbed(struct sp_steady *s, double sample)
{
    note_fastest(s, sample);
    s->disturbed++;
}

double sp_steady_value(const struct sp_steady *s)
{
    return s->sorted[s->n / 4];
}

/* The quartile of n samples is the x-th of many, where a quarter of them lies below: x is n/4 give or take
 * sqrt(3n)/4, and twice that for 95 %. */
double sp_steady_doubt(const struct sp_steady *s)
{
    int at = s->n / 4, reach = (int)ceil(sqrt(3.0 * s->n) / 2);
    int low = at > reach ? at - reach : 0, high = at + reach < s->n ? at + reach : s->n - 1;

    return fmax(s->sorted[high] - s->sorted[at], s->sorted[at] - s->sorted[low]) / s->sorted[at];
}

bool sp_steady_spoilt(const struct sp_steady *s)
{
    return s->n < SP_STEADY_LEAST || sp_steady_doubt(s) > most_doubt;
}

bool sp_steady_reached(const struct sp_steady *s)
{
    return s->n >= SP_STEADY_LEAST && sp_steady_doubt(s) <= tolerance;
}
