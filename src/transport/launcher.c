#include "transport/launcher.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

struct sp_launcher sp_launcher_find(void)
{
    /* An allocation may set a size for plain commands too; `with` is set only in the tasks that
     * it starts. */
    static const struct {
        const char *size, *with;
    } known[] = {{"OMPI_COMM_WORLD_SIZE", NULL},
                 {"PMI_SIZE", NULL},
                 {"MPI_LOCALNRANKS", NULL},
                 {"MPIRUN_NPROCS", NULL},
                 {"MV2_COMM_WORLD_SIZE", NULL},
                 {"JSM_NAMESPACE_SIZE", NULL},
                 {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
                 {"PALS_SIZE", "PALS_RANKID"},
                 {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
                 {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"}};
    struct sp_launcher most = {0};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *size = getenv(known[i].size);

        if (size && (!known[i].with || getenv(known[i].with)) && atoi(size) > most.size)
            most = (struct sp_launcher){atoi(size), known[i].size};
    }
    return most;
}

/* Slurm sets PMI's variables too, so srun is looked for first. */
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
