#include "sp_activity.h"
#include <stdbool.h>
#include <stddef.h>

static unsigned long touches;
static int waits;                /* begun and not ended */
static int awaited = SP_NO_RANK; /* by the innermost */
static const char *asked_by;
static pid_t asker;

void sp_activity_touch(void)
{
    __atomic_add_fetch(&touches, 1, __ATOMIC_RELAXED);
}

unsigned long sp_activity_touches(void)
{
    return __atomic_load_n(&touches, __ATOMIC_RELAXED);
}

void sp_activity_wait(int rank)
{
    waits++;
    __atomic_store_n(&awaited, rank, __ATOMIC_RELAXED);
}

void sp_activity_waited(void)
{
    if (--waits == 0)
        __atomic_store_n(&awaited, SP_NO_RANK, __ATOMIC_RELAXED);
    sp_activity_touch();
}

int sp_activity_awaited(void)
{
    return __atomic_load_n(&awaited, __ATOMIC_RELAXED);
}

void sp_activity_ask_end(const char *by, pid_t from)
{
    const char *none = NULL;

    if (sp_activity_end_asked())
        return;
    asker = from;
    __atomic_compare_exchange_n(&asked_by, &none, by, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

const char *sp_activity_end_asked(void)
{
    return __atomic_load_n(&asked_by, __ATOMIC_ACQUIRE);
}

pid_t sp_activity_end_asker(void)
{
    return asker;
}
