/*
 * Shared by the files of calibrate: the kernels that a machine's curves are measured with, the bench that times
 * them, and the rates that they give.
 */
#ifndef SP_CALIBRATE_RATES_H
#define SP_CALIBRATE_RATES_H

#include "codelets/task/codelet.h"
#include "codelets/task/window.h"
#include "graphs/placement.h"
#include "kernels/backend.h"
#include "plan/machine/machine.h"
#include "train/calibrate/quality.h"

/* ---- kernels.c: their arrays, their calls, and the work of a call ------------------------------- */

enum sp_timed_kernel {
    SP_TIME_LINEAR,        /* rows x in -> out */
    SP_TIME_LINEAR_DX,     /* its input gradient */
    SP_TIME_LINEAR_DW,     /* its weight gradient */
    SP_TIME_ATTENTION,     /* `rows` queries and keys, `heads` heads of `head_dim` */
    SP_TIME_ATTENTION_BWD, /* its backward */
    SP_TIME_NORM,          /* rows x in */
    SP_TIME_ADD,           /* residual: rows x in */
    SP_TIME_GELU,          /* rows x in */
    SP_TIME_ADAMW          /* rows x in parameters */
};

enum { SP_TIMED_ARRAYS = 8 };

struct sp_timed_call {
    enum sp_timed_kernel kernel;
    enum sp_dtype dtype;
    int rows, in, out;
    int heads, head_dim;
};

/* Bytes of the arrays of a call, each in complete cache lines; bytes[] (NULL: not wanted) 0: there are no more. Returns
 * their sum. */
size_t sp_timed_bytes(const struct sp_timed_call *c, size_t *bytes);

/* FLOPs of a product or of attention, otherwise bytes read and written. */
double sp_timed_work(const struct sp_timed_call *c);

/* Makes one call, on arrays that follow each other from `place` on. */
void sp_timed_run(const struct sp_backend *k, const struct sp_timed_call *c, char *place);

/*
 * ---- bench.c: a started StarPU with the workers of a run ----------------------------------------
 *
 * On each worker a task times a kernel, all at once, as they would run in a pipeline. A figure is measured in several
 * turns, with all others in between: a moment in which other programs are busy then spoils some samples of many
 * figures, and not all samples of one.
 */

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

/* Adds samples of the seconds that a task takes that does nothing. */
void sp_measure_task(struct sp_bench *b, struct sp_steady *s);

/* Shows on a terminal what is measured now; an empty text: nothing more. */
void sp_bench_show(const struct sp_bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

double sp_bench_now_s(void);

/* How long the calling thread has waited so far for a core that other threads had. 0 if the
 * system does not tell. */
double sp_bench_waited_s(void);

/* ---- curves.c, transfers.c: rates of devices, links, copies and disks ------------------- */

/* Rounds a figure to four digits: a measurement is no more exact. */
double sp_measured(double x);

/* How large calls may get, and how long measuring may take. */
struct sp_effort {
    double product_flops, attention_flops,
        memory_bytes; /* the largest calls, unless they would take too long */
    double
        seconds; /* of rounds, while figures are not steady; 4 times that while some are unknown */
};

/* Measures the devices of the bench, in rounds over all figures: curves, and the cost of a task.
 * All processes call it, so that their devices work at once. 0, or after one line -EBUSY on all
 * (rank 0's figures are spoilt) or -ENOMEM. */
int sp_measure_rates(struct sp_bench *b, const struct sp_effort *effort, struct sp_rates *r);

/* Ranks that rank 0 can exchange messages with; -1: there is none. */
struct sp_peers {
    int node, network; /* one on the same node, one on another */
};

/* All processes call it before StarPU starts. */
struct sp_peers sp_find_peers(const struct sp_world *world);

/* All processes call it; rank 0 gets the link to `peer`. */
void sp_measure_link(struct sp_bench *b, int peer, struct sp_link *link);

/* Measures a copy in memory, the link of devices that have no processes of their own. */
void sp_measure_memory_link(struct sp_bench *b, struct sp_link *link);

/* Measures copies between a GPU and the host; does nothing on cores. 0 or -errno after one line. */
int sp_measure_copies(struct sp_bench *b, struct sp_copy_rates *copy);

/* Bytes a second that AdamW reads and writes in main memory, on all cores of a node that drive no
 * GPU. */
void sp_measure_host(struct sp_bench *b, double *rate);

struct sp_disk; /* offload/disk.h */

/* Measures a file as offloading uses it. 0 or -errno after one line. */
int sp_measure_disk(struct sp_bench *b, struct sp_disk *file, struct sp_disk_rates *disk);

#endif
