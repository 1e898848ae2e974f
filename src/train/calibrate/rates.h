/* The numbers of a machine's description: rates of devices, links, copies and disks, sizes. */
#ifndef SP_CALIBRATE_RATES_H
#define SP_CALIBRATE_RATES_H

#include "train/calibrate/bench.h"

/* Four digits of a figure: what a measurement is worth. */
double sp_measured(double x);

/* How large calls get, and how long it may take. */
struct sp_effort {
    double product_flops, attention_flops,
        memory_bytes; /* the largest calls, unless they would take too long */
    double
        seconds; /* of rounds, while figures are not steady; four times that while some are not known */
};

/* Measures the devices of the bench, in rounds over all figures: curves, and the cost of a task. All processes call it, so
 * that their devices are at work at once. 0; or -EBUSY on all where rank 0's are spoilt, or -ENOMEM, after one line. */
int sp_measure_rates(struct sp_bench *b, const struct sp_effort *effort, struct sp_rates *r);

/* Seconds of a task that does nothing, some samples more. */
void sp_measure_task(struct sp_bench *b, struct sp_steady *s);

/* Ranks that rank 0 can measure messages with; -1: there is none. */
struct sp_peers {
    int node, network; /* of the same node, of another */
};

/* Before StarPU starts, called by all. */
struct sp_peers sp_find_peers(const struct sp_world *world);

/* All call it; rank 0 gets the link to `peer`. */
void sp_measure_link(struct sp_bench *b, int peer, struct sp_link *link);

/* What devices without processes of their own would hand over through: a copy in memory. */
void sp_measure_memory_link(struct sp_bench *b, struct sp_link *link);

/* Copies between a GPU and the host; nothing on cores. 0 or -errno after one line. */
int sp_measure_copies(struct sp_bench *b, struct sp_copy_rates *copy);

struct sp_disk; /* offload/disk.h */

/* Likewise, of a file as offloading uses it. */
int sp_measure_disk(struct sp_bench *b, struct sp_disk *file, struct sp_disk_rates *disk);

#endif
