/* Teams of the size that is asked for, and the scratch memory of each thread: see team.h. */
#include "kernels/cpu/team.h"
#include "sp_error.h"
#include <pthread.h>
#include <stdlib.h>

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

/* ---- scratch --------------------------------------------------------------------------------- */

struct scratch {
    void *at[SP_SCRATCH_SLOTS];
    size_t bytes[SP_SCRATCH_SLOTS];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct scratch *mine;

static void destroy(void *arg)
{
    struct scratch *s = arg;

    for (int i = 0; i < SP_SCRATCH_SLOTS; i++)
        free(s->at[i]);
    free(s);
}

static void create_key(void)
{
    int err = pthread_key_create(&key, destroy);

    if (err) {
        sp_error(err, "kernels: no thread-specific key: error %d", err);
        abort();
    }
}

void *sp_scratch(enum sp_scratch_slot slot, size_t bytes)
{
    if (!mine) {
        pthread_once(&once, create_key);
        mine = calloc(1, sizeof *mine);
        if (mine && pthread_setspecific(key, mine)) {
            free(mine);
            mine = NULL;
        }
        SP_NEED(mine, "kernels: no memory for a thread's scratch");
    }
    if (mine->bytes[slot] < bytes) {
        bytes = (bytes + 4095) & ~(size_t)4095;
        free(mine->at[slot]);
        mine->bytes[slot] = 0;
        mine->at[slot] = aligned_alloc(64, bytes);
        SP_NEED(mine->at[slot], "kernels: no memory for %zu bytes of scratch", bytes);
        mine->bytes[slot] = bytes;
    }
    return mine->at[slot];
}
