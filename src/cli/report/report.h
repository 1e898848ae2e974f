/* The forms of `starpipe report`. */
#ifndef SP_CLI_REPORT_H
#define SP_CLI_REPORT_H

#include "trace/analysis/causes.h"
#include "trace/analysis/findings.h"
#include "trace/analysis/path.h"
#include <stdio.h>

/* All that is said of a step. */
struct sp_report {
    const struct sp_timeline *t;
    struct sp_waits waits;
    struct sp_causes causes;
    struct sp_path path;
    struct sp_finding finding[SP_FINDINGS];
    struct sp_long_wait longest[SP_LONG_WAITS];
    int n_longest;
};

/* 0 or -ENOMEM; nothing to be destroyed then. */
int sp_report_make(const struct sp_timeline *t, struct sp_report *r);
void sp_report_destroy(struct sp_report *r);

/* "1f1b, gpt-tiny, measured: ..." */
void sp_report_headline(const struct sp_timeline *t, FILE *out);
/* A finding is worth a line: a thousandth of the step. */
bool sp_report_counts(const struct sp_report *r, const struct sp_finding *f);
/* One of the longest waits in words. */
void sp_report_wait(const struct sp_report *r, const struct sp_long_wait *wait, FILE *out);

/* 0, or -errno after one line. */
int sp_report_html(const struct sp_report *r, FILE *out);

#endif
