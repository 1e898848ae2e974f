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
    double took_s,
        waited_s; /* what they took in all, and of that, how long threads waited for cores */
};

/* After the SP_STEADY_MOST-th it does nothing. */
void sp_steady_add(struct sp_steady *s, double sample);

/* One during which other programs had the processor: it only tells how long a call takes at most. */
void sp_steady_disturbed(struct sp_steady *s, double sample);

/* The median, of at least one sample, the shorter of two in the middle: a step has calls like the others, and not the
 * shortest ones of each alone. */
double sp_steady_value(const struct sp_steady *s);

/* The part of itself by which it is longer than the lower quartile: what disturbs a sample makes it longer, so that the
 * quartile tells how long others may be too. */
double sp_steady_doubt(const struct sp_steady *s);

/* Tells whether they make no figure at all: fewer than SP_STEADY_LEAST of them count. */
bool sp_steady_spoilt(const struct sp_steady *s);

/* Tells whether there are SP_STEADY_LEAST samples and the doubt is at most 5 %. */
bool sp_steady_reached(const struct sp_steady *s);

#endif
