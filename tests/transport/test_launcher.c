/* How many processes a launcher says that it started, and the likely cause where MPI knows of one. */
#include "policies/common.h"
#include "transport/launcher.h"
#include <stdlib.h>

static const char *const names[] = {"OMPI_COMM_WORLD_SIZE",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    "MPIRUN_NPROCS",
                                    "MV2_COMM_WORLD_SIZE",
                                    "SLURM_NTASKS",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "JSM_NAMESPACE_SIZE",
                                    "SLURM_STEP_ID",
                                    "FLUX_JOB_SIZE",
                                    "FLUX_TASK_RANK",
                                    "PALS_SIZE",
                                    "PALS_RANKID"};

static void clear(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static const char *refusal(const char *mpi)
{
    static struct capture said;
    struct sp_launcher l = sp_launcher_find();
    int err;

    err = CAPTURED(&said, sp_launcher_refuse(&l, mpi));
    assert_int_equal(err, -EINVAL);
    return said.text;
}

TEST(test_sizes)
{
    clear();
    assert_int_equal(sp_launcher_find().size, 0);
    setenv("SLURM_NTASKS", "4", 1); /* in an allocation, for plain commands too */
    assert_int_equal(sp_launcher_find().size, 0);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    setenv("SLURM_PROCID", "0", 1);
    assert_int_equal(sp_launcher_find().size, 3);
    setenv("PMI_SIZE", "5", 1); /* mpirun inside a step of one task a node */
    assert_int_equal(sp_launcher_find().size, 5);
    assert_string_equal(sp_launcher_find().variable, "PMI_SIZE");
    setenv("OMPI_COMM_WORLD_SIZE", "7", 1);
    assert_int_equal(sp_launcher_find().size, 7);
    setenv("PMI_SIZE", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(sp_launcher_find().size, 3);
    assert_string_equal(sp_launcher_find().variable, "SLURM_STEP_NUM_TASKS");
    clear();
}

/* A size counts where something says that this is one of the tasks. */
TEST(test_tasks)
{
    static const char *const pairs[][2] = {{"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
                                           {"PALS_SIZE", "PALS_RANKID"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
                                           {"MPIRUN_NPROCS", NULL}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        clear();
        setenv(pairs[i][0], "6", 1);
        if (pairs[i][1]) {
            assert_int_equal(sp_launcher_find().size, 0);
            setenv(pairs[i][1], "0", 1);
        }
        assert_int_equal(sp_launcher_find().size, 6);
        assert_string_equal(sp_launcher_find().variable, pairs[i][0]);
    }
    clear();
}

TEST(test_causes)
{
    clear();
    setenv("PMI_SIZE", "2", 1);
    assert_non_null(
        strstr(refusal("MPI X"), "one of 2 tasks (PMI_SIZE), but MPI (MPI X) knows of 1"));
    assert_non_null(strstr(refusal("MPI X"), "another MPI's mpirun"));
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    assert_non_null(strstr(refusal("MPI X"), "srun --mpi=pmix"));
    assert_non_null(strstr(refusal(NULL), "built without MPI"));
    clear();
}
