#include "policies/registry.h"
#include <string.h>

#define DECLARE(name) extern const struct sp_schedule_def sp_schedule_##name;
SP_SCHEDULES(DECLARE)

#define ADDRESS(name) &sp_schedule_##name,
static const struct sp_schedule_def *const builtin[] = {SP_SCHEDULES(ADDRESS)};

#define N_BUILTIN ((int)(sizeof builtin / sizeof *builtin))

const struct sp_schedule_def *sp_schedule_at(int i)
{
    return i >= 0 && i < N_BUILTIN ? builtin[i] : NULL;
}

const struct sp_schedule_def *sp_schedule_find(const char *name)
{
    size_t len = strcspn(name, ":");
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        if (strlen(def->name) == len && !strncmp(def->name, name, len))
            return def;
    }
    return NULL;
}
