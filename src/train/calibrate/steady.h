/* Repetitions until what they take is known well enough. Pure. */
#ifndef SP_STEADY_H
#define SP_STEADY_H

#include <stdbool.h>

enum { SP_STEADY_LEAST = 3, SP_STEADY_MOST = 101 };

/* All zeros: no sample yet. */
struct sp_steady {
    int n;
    double sorted[SP_STEADY_MOST];
    int disturbed;  /* samples that do not count */
    double fastest; /* of all, these too; 0: there are none */
};

/* After the SP_STEADY_MOST-th it does nothing. */
void sp_steady_add(struct sp_steady *s, double sample);

/* One during which other programs had the processor: it only tells how long a call takes at most. */
void sp_steady_disturbed(struct sp_steady *s, double sample);

/* The lower quartile, of at least one sample, and no less than the second of several: all that disturbs a sample makes it
 * longer, so that a quarter of them may be right where others are not. */
double sp_steady_value(const struct sp_steady *s);

/* The part of itself by which it is longer than the lower octile: where nothing disturbs them, many take about as long.
 * Shorter ones are few, of moments in which another worker had nothing to do. */
double sp_steady_doubt(const struct sp_steady *s);

/* Tells whether they make no figure at all: there are fewer than SP_STEADY_LEAST, or the doubt is more than 35 %. */
bool sp_steady_spoilt(const struct sp_steady *s);

/* Tells whether there are SP_STEADY_LEAST samples and the doubt is at most 5 %. */
bool sp_steady_reached(const struct sp_steady *s);

#endif
