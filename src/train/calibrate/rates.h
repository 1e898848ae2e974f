/* The numbers of a machine's description: rates of devices, links, copies and disks, sizes. */
#ifndef SP_CALIBRATE_RATES_H
#define SP_CALIBRATE_RATES_H

#include "train/calibrate/bench.h"

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

/* Adds samples of the seconds that a task takes that does nothing. */
void sp_measure_task(struct sp_bench *b, struct sp_steady *s);

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

struct sp_disk; /* offload/disk.h */

/* Measures a file as offloading uses it. 0 or -errno after one line. */
int sp_measure_disk(struct sp_bench *b, struct sp_disk *file, struct sp_disk_rates *disk);

#endif
