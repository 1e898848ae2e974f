/* Repetitions until their median is known well enough. Pure. */
#ifndef SP_STEADY_H
#define SP_STEADY_H

#include <stdbool.h>

enum { SP_STEADY_LEAST = 3, SP_STEADY_MOST = 101 };

/* All zeros: no sample yet. */
struct sp_steady {
    int n;
    double sorted[SP_STEADY_MOST];
};

/* Not after the SP_STEADY_MOST-th. */
void sp_steady_add(struct sp_steady *s, double sample);

/* Of at least one sample. */
double sp_steady_median(const struct sp_steady *s);

/* Whether the median of many more would lie within 5 % of this one: the samples that bound it with 95 %
 * confidence do, those sqrt(n) places before and after it. Never of fewer than SP_STEADY_LEAST. */
bool sp_steady_reached(const struct sp_steady *s);

#endif
