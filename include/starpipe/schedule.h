/*
 * What a schedule is given, and what it gives back. A schedule is an order (policy) over a graph
 * family; both are pure functions of the layout.
 */
#ifndef STARPIPE_SCHEDULE_H
#define STARPIPE_SCHEDULE_H

#include "starpipe/op.h"

#define SP_SCHEDULE_ABI 1

/* Sizes a schedule may depend on. */
struct sp_layout {
    int stages;          /* p */
    int micro_batches;   /* m */
    int chunks;          /* v, chunks per stage */
    int slices;          /* n, slices per sequence */
    int layers;          /* L; 0: unknown, as in `show` of a stage-level schedule */
    const char *options; /* "key=value,key=value" given after the name, "" if none */
};

/* Value of an option of the layout, or `fallback`. *ok is cleared if it is not a number. */
int sp_layout_option_int(const struct sp_layout *lay, const char *key, int fallback, int *ok);
/* Text of an option copied into out[n]; 0 if absent, 1 if found. */
int sp_layout_option(const struct sp_layout *lay, const char *key, char *out, size_t n);

struct sp_schedule_def {
    int abi;             /* SP_SCHEDULE_ABI */
    const char *name;    /* as the user types it */
    const char *summary; /* one line */
    const char *source;  /* paper or code it was published in */
    const char *family;  /* graph family: "layerwise", ... */
    const char *options; /* the keys it accepts, comma-separated; NULL: none */
    int default_chunks;  /* chunks per stage when the user gives none */

    /* Says in why[n] what is impossible and what would do; 0 or -EINVAL. May be NULL. */
    int (*check)(const struct sp_layout *lay, char *why, size_t n);

    /* Appends the ops of one stage. Called only when check agreed. */
    void (*emit)(const struct sp_layout *lay, int stage, struct sp_program *prog);

    /* Published closed form of the makespan at stage-level costs f, b, w (communication 0), for
     * comparison in `show`; negative: none for this layout. May be NULL. */
    double (*makespan)(const struct sp_layout *lay, double f, double b, double w);
    const char *makespan_source; /* "m(f+b+w) + (p-1)(f+b+w), HelixPipe eq. 1" */
};

#endif
