#include "policies/registry.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

#define DECLARE(name) extern const struct sp_schedule_def sp_schedule_##name;
SP_SCHEDULES(DECLARE)

#define ADDRESS(name) &sp_schedule_##name,
static const struct sp_schedule_def *const builtin[] = {SP_SCHEDULES(ADDRESS)};

#define N_BUILTIN ((int)(sizeof builtin / sizeof *builtin))

static struct added {
    const struct sp_schedule_def *def;
    const char *plugin;
} * added;
static int n_added;

const struct sp_schedule_def *sp_schedule_at(int i)
{
    if (i < N_BUILTIN)
        return i >= 0 ? builtin[i] : NULL;
    return i - N_BUILTIN < n_added ? added[i - N_BUILTIN].def : NULL;
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

int sp_schedule_add(const struct sp_schedule_def *def, const char *plugin)
{
    struct added *more = realloc(added, ((size_t)n_added + 1) * sizeof *added);

    if (!more)
        return sp_error(ENOMEM, "no memory for schedule %s", def->name);
    added = more;
    added[n_added++] = (struct added){def, plugin};
    return 0;
}

const char *sp_schedule_plugin(const struct sp_schedule_def *def)
{
    for (int i = 0; i < n_added; i++) {
        if (added[i].def == def)
            return added[i].plugin;
    }
    return NULL;
}
