/* Figures as they are printed. */
#ifndef SP_FIGURE_H
#define SP_FIGURE_H

#include <math.h>

enum { SP_FIGURE_ALL = 9 }; /* decimals of a figure that is printed with all its digits */

/* A figure of which so many decimals are printed: 0 without a sign where they are all 0. A difference of equal times
 * is not always 0, and "-0.000" or "-9.0e-14" says nothing more than that. */
static inline double sp_figure(double v, int decimals)
{
    return fabs(v) * pow(10, decimals) < 0.5 ? 0 : v;
}

#endif
