/* Repeats a measurement until its value is known well enough. Pure. */
#ifndef SP_STEADY_H
#define SP_STEADY_H

#include <stdbool.h>

enum { SP_STEADY_LEAST = 3, SP_STEADY_MOST = 101 };

/* All zeros: no sample yet. */
struct sp_steady {
    int n;
    double sorted[SP_STEADY_MOST];
    int disturbed;  /* samples that do not count */
    double fastest; /* of all samples, disturbed ones too; 0: there are none */
    double took_s,
        waited_s; /* time of all samples, and the part of it that threads waited for cores */
};

/* Adds a sample; after the SP_STEADY_MOST-th it does nothing. */
void sp_steady_add(struct sp_steady *s, double sample);

/* Adds a sample during which other programs had the processor: it only tells how long a call
 * takes at most. */
void sp_steady_disturbed(struct sp_steady *s, double sample);

/* The median of at least one sample, the shorter of the two in the middle: a step's calls are
 * like most of the samples, and not like the shortest. */
double sp_steady_value(const struct sp_steady *s);

/* By how much the median is longer than the lower quartile, as a part of the median. A
 * disturbance only makes samples longer, so the quartile bounds how much longer than undisturbed
 * ones they may be. */
double sp_steady_doubt(const struct sp_steady *s);

/* True if the samples make no figure at all: fewer than SP_STEADY_LEAST of them count. */
bool sp_steady_spoilt(const struct sp_steady *s);

/* True if there are SP_STEADY_LEAST samples and the doubt is at most 5 %. */
bool sp_steady_reached(const struct sp_steady *s);

#endif
