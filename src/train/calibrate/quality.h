/* Judges how far the figures of a calibration can be trusted. Pure. */
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
        [SP_QUALITY_TEXT];   /* first figure of a device without samples that count; empty: none */
    double took_s, waited_s; /* sums over the samples of all: see sp_steady.h */
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
