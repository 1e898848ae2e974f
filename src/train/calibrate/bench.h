/*
 * The bench that measures: a started StarPU with the workers of a run. On each of them a task times
 * a kernel, all at once, as they would run in a pipeline.
 *
 * A figure is measured in several turns, with all others in between: a moment in which other programs
 * are busy then spoils some samples of many figures, and not all samples of one.
 */
#ifndef SP_CALIBRATE_BENCH_H
#define SP_CALIBRATE_BENCH_H

#include "codelets/task/window.h"
#include "codelets/task/codelet.h"
#include "graphs/placement.h"
#include "train/calibrate/kernels.h"
#include "train/calibrate/quality.h"

struct sp_bench {
    /* given */
    struct sp_placement place;
    double turn_s;              /* time for samples of a figure in each turn */
    double longest_s;           /* calls that would take longer are not made */
    bool shows;                 /* progress on stderr */
    bool rough;                 /* figures that other programs disturbed count as well */
    struct sp_quality *quality; /* of the figures so far */

    unsigned *order; /* [workers] last position of each */
    struct sp_meter meter;
    struct sp_window *window;
    void *noise; /* what arrays are filled with */
    struct sp_tensor *noise_tensor;
    struct sp_tensor **arena; /* [workers] memory that the arrays of all figures use in turn */
    size_t arena_bytes;       /* of each; 0: there is none yet */
};

/* Seconds of a call. */
struct sp_figure {
    char what[SP_QUALITY_TEXT];
    struct sp_timed_call call;
    size_t
        spread; /* bytes of memory that calls take turns in, so that none finds in a cache what the
                 * last one left there; 0: all use the same arrays */
    struct sp_steady *worker; /* [workers] */
};

/* Needs a started StarPU, under a policy of starpipe/order.h. 0, or -errno after one line. */
int sp_bench_create(struct sp_bench *b);
void sp_bench_destroy(struct sp_bench *b);

/* Takes more samples of a figure on all workers. */
void sp_bench_turn(struct sp_bench *b, struct sp_figure *f);

/* The mean of the workers for a figure that was measured. Without undisturbed samples: the most
 * that it takes. */
double sp_figure_s(const struct sp_bench *b, const struct sp_figure *f);

/* True if the samples of all workers make a figure; true if they are steady, or as many as there
 * may be. */
bool sp_figure_known(const struct sp_bench *b, const struct sp_figure *f);
bool sp_figure_reached(const struct sp_bench *b, const struct sp_figure *f);

/* A task context on a worker, for sp_task_new and sp_task_submit. */
struct sp_task_context sp_bench_context(struct sp_bench *b, int worker);

/* Shows on a terminal what is measured now; an empty text: nothing more. */
void sp_bench_show(const struct sp_bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

double sp_bench_now_s(void);

/* How long the calling thread has waited so far for a core that other threads had. 0 if the
 * system does not tell. */
double sp_bench_waited_s(void);

#endif
