/* Measuring a machine, for a description of it that plans and predictions use. */
#ifndef SP_CALIBRATE_H
#define SP_CALIBRATE_H

#include "plan/machine/machine.h"
#include "transport/transport.h"

struct sp_placement;
struct sp_disk;

struct sp_calibration {
    int device;  /* SP_TRAIN_DEVICE_AUTO, SP_TRAIN_CPU, SP_TRAIN_CUDA */
    int threads; /* of a device made of cores; 0: one device has all cores of its process */
    const char *offload_dir;
    bool quick; /* small sizes, less exact */
    bool shows; /* progress on stderr */
};

/* Finds the devices of this process, and on rank 0 makes the file that the disk is measured with: all that can
 * be refused. 0, or -errno after one line. */
int sp_calibrate_prepare(const struct sp_calibration *c, const struct sp_world *world,
                         struct sp_placement *place, struct sp_disk **disk);

/* Measures, on all processes together; *m is set on rank 0. Ends the disk. 0, or -errno after one line. */
int sp_calibrate(const struct sp_calibration *c, const struct sp_placement *place,
                 struct sp_disk *disk, struct sp_machine *m);

#endif
