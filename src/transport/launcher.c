#include "transport/launcher.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

struct sp_launcher sp_launcher_find(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                        "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE"};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (getenv(sizes[i]))
            return (struct sp_launcher){atoi(getenv(sizes[i])), sizes[i]};
    /* Inside an allocation SLURM_NTASKS is set for plain commands too; srun adds the step's. */
    if (getenv("SLURM_STEP_NUM_TASKS") && getenv("SLURM_PROCID"))
        return (struct sp_launcher){atoi(getenv("SLURM_STEP_NUM_TASKS")), "SLURM_STEP_NUM_TASKS"};
    return (struct sp_launcher){0};
}

/* Under srun also the variables of PMI are Slurm's. */
static const char *cause(const char *variable)
{
    if (!strncmp(variable, "OMPI_", 5))
        return "Open MPI's mpirun started it, but it was built with another MPI: use that one's";
    if (!strncmp(variable, "SLURM_", 6) || getenv("SLURM_STEP_NUM_TASKS"))
        return "Slurm and MPI do not speak the same PMI: use srun --mpi=pmix (srun --mpi=list "
               "shows what there is), or mpirun inside the allocation";
    return "another MPI's mpirun or mpiexec started it: use the one of the MPI that it was built "
           "with";
}

int sp_launcher_refuse(const struct sp_launcher *l, const char *mpi)
{
    if (!mpi)
        return sp_error(EINVAL,
                        "started as one of %d tasks (%s), but built without MPI, so that each "
                        "would train alone: configure --with-mpi, or start one",
                        l->size, l->variable);
    return sp_error(EINVAL,
                    "started as one of %d tasks (%s), but MPI (%s) knows of 1, so that each would "
                    "train alone: %s; or start one",
                    l->size, l->variable, mpi, cause(l->variable));
}
