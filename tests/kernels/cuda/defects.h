/* Kernels with one mistake each, and how a run of them ends. */
#ifndef SP_TESTS_DEFECTS_H
#define SP_TESTS_DEFECTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Mistakes that end the run with exit status 1. */
enum defect {
    NO_DEFECT,
    BARRIER_OF_SOME,    /* half of the block ends instead */
    BARRIERS_APART,     /* halves of the block wait at different lines */
    BARRIER_OR_SHUFFLE, /* lanes of a warp wait for different things */
    LANE_AWAY,          /* a shuffle with a lane that has ended */
    LANE_OUTSIDE,       /* a lane that is not in the mask it gives */
    SHARED_BEYOND,      /* a write past the end of shared memory */
    COPY_FORGOTTEN,     /* asynchronous, and never waited for */
    DEFECTS
};
void sp_defect_run(enum defect defect);

/* These mistakes show in the results: true if the results are those of a correct kernel. */
bool sp_defect_race(unsigned order, bool barrier);
bool sp_defect_copy(bool wait);
bool sp_defect_uninitialised(void);
bool sp_defect_host_memory(void);

/* True if a launch is accepted. */
bool sp_defect_launch(unsigned grid_y, unsigned threads, unsigned shared, bool ask);

#ifdef __cplusplus
}
#endif

#endif
