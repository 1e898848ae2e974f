/* How far the figures of a calibration are to be trusted. Pure. */
#ifndef SP_CALIBRATE_QUALITY_H
#define SP_CALIBRATE_QUALITY_H

#include "plan/machine/machine.h"
#include "train/calibrate/steady.h"

enum { SP_QUALITY_TEXT = 96, SP_QUALITY_WORST = 4 };

/* All zeros: no figure yet. */
struct sp_quality {
    int figures, unsteady;
    struct {
        char what[SP_QUALITY_TEXT];
        double doubt;
    } worst[SP_QUALITY_WORST]; /* of the unsteady ones, the worst first */

    char spoilt
        [SP_QUALITY_TEXT]; /* the first of the devices' figures without samples that count; empty: there is none */
    double took_s, waited_s; /* of the samples of all: see sp_steady.h */
};

/* One more figure: of a device, or of what cannot be told from other programs' use of it, as a disk. */
void sp_quality_add(struct sp_quality *q, const char *what, const struct sp_steady *s);
void sp_quality_add_shared(struct sp_quality *q, const char *what, const struct sp_steady *s);

/* "3 of 120 figures did not get steady within 5 %: norm of 1e+06 bytes by 12 %, ..." */
void sp_quality_text(const struct sp_quality *q, char *text, size_t n);

/* Refuses what other programs have spoilt, which had a core for a tenth of the time or whenever a figure was timed: 0, or
 * -EBUSY after one line. */
int sp_quality_check(const struct sp_quality *q);

/*
 * Refuses figures that no device has: of cores, beyond what the instructions of so many threads could do, or less than
 * a thousandth of what one thread could; of GPUs, less than a thousandth of the fastest of its figures of the kind. 0, or
 * -ERANGE after one line.
 */
int sp_quality_check_rates(const struct sp_rates *r);

#endif
