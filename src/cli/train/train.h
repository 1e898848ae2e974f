/* The parts of `starpipe train`. */
#ifndef SP_CLI_TRAIN_H
#define SP_CLI_TRAIN_H

#include "cli/report/report.h"
#include "cli/train/typical_step.h"
#include "train/trainer.h"

/* The configuration that the command line asks for, not checked as a whole. 0, 1 (help printed) or
 * -EINVAL. */
int sp_train_parse(int argc, char **argv, struct sp_train_config *cfg);

/* All steps and what follows them. 0 or -errno: -EDOM when the run diverged, -EINTR when a signal
 * ended it and nothing was saved. */
int sp_loop(struct sp_trainer *t);

/* For sp_train_config: signals. */
int sp_loop_asks(void *arg);

/* --dry-run: prints what would run, and how fast. 0, or -errno after one line. */
int sp_dry_run(const struct sp_trainer *t);

/* ---- before the first step, and about --offload (words.c) */

/* Warns about settings that are possible but unusual. */
void sp_print_warnings(const struct sp_trainer *t);
/* Prints three lines on stdout: the model and where its weights come from, since nobody should
 * train from random ones unknowingly; the schedule and where it runs; where the run saves. */
void sp_print_header(const struct sp_trainer *t);
/* The plan of what leaves memory; and t->report's account of what did leave. */
void sp_print_offload(const struct sp_trainer *t);
void sp_print_offloaded(const struct sp_trainer *t);

/* ---- after the last step: t->report is that of a typical step, and sp_report of its record */

/* --report: the bubble measured beside the one expected and what makes the difference, memory
 * (summary.c). */
void sp_print_summary(const struct sp_trainer *t, const struct sp_typical *typical,
                      const struct sp_report *step);

/*
 * --trace (trace.c): writes DIR/trace.json, the record of the step; DIR/predicted.json, its
 * prediction; DIR/measured.svg; DIR/expected.svg, the step as the schedule would have it;
 * DIR/trace.html with both pictures. 0 or -errno.
 */
int sp_trace_write(const struct sp_trainer *t, const struct sp_waits *step);

struct sp_closing {
    const struct sp_report *step; /* of the typical step */
    double loss;                  /* of the last step */
    double seconds;               /* the run's duration, from its first step */
};

/* Prints the last three lines: the result, where the time went, and what to look at next
 * (closing.c). */
void sp_print_closing(const struct sp_trainer *t, const struct sp_closing *c);

enum { SP_ADVICE = 512 };

/*
 * Writes advice that would make steps shorter: one sentence without its full stop, with how much
 * faster steps would be. It comes from the report of a typical step, and from plays of other
 * layouts at the costs that t->report measured (advice.c). "": the figures support none.
 */
void sp_advise(const struct sp_trainer *t, const struct sp_report *r, char text[SP_ADVICE]);

#endif
