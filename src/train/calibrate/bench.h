/*
 * What measures: a started StarPU with the workers of a run, on each of which a task times a kernel, all of
 * them at once, as they would be in a pipeline.
 */
#ifndef SP_CALIBRATE_BENCH_H
#define SP_CALIBRATE_BENCH_H

#include "codelets/task/window.h"
#include "codelets/task/codelet.h"
#include "graphs/placement.h"
#include "train/calibrate/kernels.h"

struct sp_bench {
    /* given */
    struct sp_placement place;
    double figure_s;  /* time for a figure, if it is not steady before */
    double longest_s; /* no calls that would take longer */
    bool shows;       /* progress on stderr */

    unsigned order[STARPU_NMAXWORKERS]; /* last position of each worker */
    struct sp_meter meter;
    struct sp_window *window;
    void *noise; /* what arrays are filled with */
    starpu_data_handle_t noise_handle;
    int figures, unsteady; /* so far: medians, and those that time was up for */
};

/* In a started StarPU, under a policy of starpipe/order.h. 0, or -errno after one line. */
int sp_bench_create(struct sp_bench *b);
void sp_bench_destroy(struct sp_bench *b);

/* Seconds of a call, the median of repetitions and the mean of the workers. `spread`: bytes of memory that
 * calls take turns in, so that one does not find in a cache what the last one left there; 0: all take the
 * same arrays. */
double sp_bench_time(struct sp_bench *b, const struct sp_timed_call *call, size_t spread);

/* A median of others' repetitions is one more figure. */
void sp_bench_count(struct sp_bench *b, bool steady);

/* A task's place on a worker: for sp_task_new and sp_task_submit. */
struct sp_task_context sp_bench_context(struct sp_bench *b, int worker);

/* What is measured now, on a terminal; NULL: nothing more. */
void sp_bench_show(const struct sp_bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

double sp_bench_now_s(void);

#endif
