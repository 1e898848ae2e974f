/* Repeats a measurement until its value is known well enough, and judges how far the figures of a calibration can be
 * trusted. Pure. */
#ifndef SP_CALIBRATE_QUALITY_H
#define SP_CALIBRATE_QUALITY_H

#include "plan/machine/machine.h"
#include <stdbool.h>

/* ---- the samples of a figure -------------------------------------------------------------------- */

enum { SP_STEADY_LEAST = 3, SP_STEADY_MOST = 101 };

/* All zeros: no sample yet. */
struct sp_steady {
    int n;
    double sorted[SP_STEADY_MOST];
    int disturbed;  /* samples that do not count */
    double fastest; /* of all samples, disturbed ones too; 0: there are none */
    double took_s,
        waited_s; /* of the samples of sp_steady_take: their time, that threads waited for cores */
};

/* Adds a sample; after the SP_STEADY_MOST-th it does nothing. */
void sp_steady_add(struct sp_steady *s, double sample);

/* Adds a sample during which other programs had the processor: it only tells how long a call
 * takes at most. */
void sp_steady_disturbed(struct sp_steady *s, double sample);

/* Adds a sample of calls, or counts it as disturbed if threads waited for their cores for too large a part of it. */
void sp_steady_take(struct sp_steady *s, double took_s, double waited_s, int calls);

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

/* ---- all figures --------------------------------------------------------------------------------- */

enum { SP_QUALITY_TEXT = 96, SP_QUALITY_WORST = 4 };

/* All zeros: no figure yet. */
struct sp_quality {
    int figures, unsteady;
    struct {
        char what[SP_QUALITY_TEXT];
        double doubt;
    } worst[SP_QUALITY_WORST]; /* of the unsteady ones, the worst first */

    char spoilt
        [SP_QUALITY_TEXT];   /* first figure of a device without samples that count; empty: none */
    double took_s, waited_s; /* sums over the samples of all: see struct sp_steady */
};

/* Adds a figure: of a device, or of something shared, such as a disk, where other programs' use
 * cannot be told apart. */
void sp_quality_add(struct sp_quality *q, const char *what, const struct sp_steady *s);
void sp_quality_add_shared(struct sp_quality *q, const char *what, const struct sp_steady *s);

/* "3 of 120 figures did not get steady within 5 %: norm of 1e+06 bytes by 12 %, ..." */
void sp_quality_text(const struct sp_quality *q, char *text, size_t n);

/* Refuses a calibration that other programs have spoilt: they had a core for a tenth of the
 * time, or whenever some figure was timed. 0, or -EBUSY after one line. */
int sp_quality_check(const struct sp_quality *q);

/*
 * Refuses figures that no device has. Cores: more than the instructions of their threads could do,
 * or less than a thousandth of what one thread could do. GPUs: less than a thousandth of the
 * fastest of the GPU's figures of the same kind. 0, or -ERANGE after one line.
 */
int sp_quality_check_rates(const struct sp_rates *r);

#endif
