#include "transport/launcher.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- its process --------------------------------------------------------------------------------- */

/* Reads a process's name, parent and start from /proc. False: it is gone, or a zombie. */
static bool read_process(pid_t pid, char name[32], pid_t *parent, unsigned long long *start)
{
    char path[48], text[1024], *end, state;
    FILE *f;
    size_t n;
    int up;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    end = strrchr(text, ')');
    if (!end || !strchr(text, '('))
        return false;
    *end = '\0';
    snprintf(name, 32, "%.31s", strchr(text, '(') + 1);
    if (sscanf(end + 1,
               " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &up, start) != 3)
        return false;
    *parent = up;
    return state != 'Z' && state != 'X';
}

static bool is_launcher(const char *name)
{
    static const char *const names[] = {
        "mpirun",  "mpiexec", "orterun",         "orted",         "prte",      "prted",
        "prterun", "srun",    "hydra_pmi_proxy", "mpiexec.hydra", "slurmstepd"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

void sp_parent_find(struct sp_parent *p)
{
    pid_t direct = getppid(), pid = direct, up;
    unsigned long long start;
    char name[32];

    *p = (struct sp_parent){0};
    if (!sp_launcher_find().size)
        return;
    for (int i = 0; i < 16 && pid > 1 && read_process(pid, name, &up, &start); i++, pid = up)
        if (is_launcher(name)) {
            *p = (struct sp_parent){pid, start};
            return;
        }
    if (direct > 1 && read_process(direct, name, &up, &start))
        *p = (struct sp_parent){direct, start};
}

bool sp_parent_gone(const struct sp_parent *p)
{
    unsigned long long start;
    char name[32];
    pid_t up;

    return p->pid && (!read_process(p->pid, name, &up, &start) || start != p->start);
}
