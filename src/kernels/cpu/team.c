/* Teams of the size that is asked for, see team.h. */
#include "kernels/cpu/team.h"

_Thread_local bool sp_team_settled;

#ifdef _OPENMP
int sp_team_most(void)
{
    return omp_get_thread_limit();
}

/* These settings are each thread's own, and begin as the environment says. */
void sp_team_settle(int threads)
{
    int most = sp_team_most();

    omp_set_dynamic(0);
    if (omp_get_max_active_levels() < 1)
        omp_set_max_active_levels(1);
    omp_set_num_threads(threads < most ? threads : most);
    sp_team_settled = true;
}
#else
int sp_team_most(void)
{
    return 1;
}

void sp_team_settle(int threads)
{
    (void)threads;
    sp_team_settled = true;
}
#endif
