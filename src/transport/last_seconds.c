#include "transport/last_seconds.h"
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

static void *leave(void *status)
{
    for (unsigned left = 5; left; left = sleep(left))
        continue;
    _exit((int)(intptr_t)status);
}

bool sp_last_seconds(int status)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool runs;
    pthread_t thread;
    bool leaves;

    pthread_mutex_lock(&mutex);
    if (!runs)
        runs = !pthread_create(&thread, NULL, leave, (void *)(intptr_t)status);
    leaves = runs;
    pthread_mutex_unlock(&mutex);
    return leaves;
}
