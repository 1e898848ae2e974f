/* Measures a machine, for a description of it that plans and predictions use. */
#ifndef SP_CALIBRATE_H
#define SP_CALIBRATE_H

#include "graphs/placement.h"
#include "plan/machine/machine.h"

struct sp_disk;

enum { SP_TEAMS = SP_MACHINE_TEAMS + 1 };

struct sp_calibration {
    int device;  /* SP_TRAIN_DEVICE_AUTO, SP_TRAIN_CPU, SP_TRAIN_CUDA */
    int threads; /* of a device made of cores; 0: one device has all cores of its process, and
                  * devices of 1, 2, 4 ... threads are measured too */
    const char *offload_dir; /* NULL: no disk is measured */
    bool quick;              /* small sizes, less exact */
    bool rough;              /* figures that other programs disturbed count as well */
    double seconds; /* of rounds over all figures, for each number of threads; 0: `quick` decides */
    bool shows;     /* progress on stderr */
};

/* The devices that are measured: the described ones last, before them those of other numbers of
 * threads, ascending. */
struct sp_calibrated {
    int n;
    struct sp_placement place[SP_TEAMS];
};

/* Finds the devices of this process, and on rank 0 makes the file that the disk is measured
 * with: with it, all that can be refused is refused before anything is measured. 0, or -errno
 * after one line. */
int sp_calibrate_prepare(const struct sp_calibration *c, const struct sp_world *world,
                         struct sp_calibrated *devices, struct sp_disk **disk);

/* Measures, on all processes together; sets *m on rank 0. Ends the disk. 0, or -errno after one
 * line. -EBUSY on all: other programs disturbed it. -ERANGE on rank 0 only, when all are done:
 * no device can have one of the figures. */
int sp_calibrate(const struct sp_calibration *c, const struct sp_calibrated *devices,
                 struct sp_disk *disk, struct sp_machine *m);

#endif
