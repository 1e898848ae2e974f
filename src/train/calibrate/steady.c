#include "train/calibrate/steady.h"

static const double tolerance = 0.05;

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

static int place(const struct sp_steady *s)
{
    return (s->n - 1) / 2;
}

double sp_steady_value(const struct sp_steady *s)
{
    return s->sorted[place(s)];
}

double sp_steady_doubt(const struct sp_steady *s)
{
    return 1 - s->sorted[(s->n - 1) / 4] / sp_steady_value(s);
}

bool sp_steady_spoilt(const struct sp_steady *s)
{
    return s->n < SP_STEADY_LEAST;
}

bool sp_steady_reached(const struct sp_steady *s)
{
    return s->n >= SP_STEADY_LEAST && sp_steady_doubt(s) <= tolerance;
}
