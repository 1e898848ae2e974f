/* How many processes the launcher started, from its environment. */
#ifndef SP_LAUNCHER_H
#define SP_LAUNCHER_H

#include <stdlib.h>

/* 0: no launcher (a plain command line). */
static inline int sp_launcher_size(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                        "PMIX_SIZE"};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (getenv(sizes[i]))
            return atoi(getenv(sizes[i]));
    /* Inside an allocation SLURM_NTASKS is set for plain commands too; srun adds the step's. */
    if (getenv("SLURM_STEP_NUM_TASKS") && getenv("SLURM_PROCID"))
        return atoi(getenv("SLURM_STEP_NUM_TASKS"));
    return 0;
}

#endif
