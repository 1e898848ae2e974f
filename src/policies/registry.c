#include "policies/registry.h"
#include "policies/families/vocabulary/vocabulary.h"
#include "policies/families/families.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* schedules.inc has X(name) for each sp_schedule_name that a file of orders/ defines. */
#define X(name) extern const struct sp_schedule_def sp_schedule_##name;
#include "src/policies/schedules.inc"
#undef X

#define X(name) &sp_schedule_##name,
static const struct sp_schedule_def *const builtin[] = {
#include "src/policies/schedules.inc"
};
#undef X

#define N_BUILTIN ((int)(sizeof builtin / sizeof *builtin))

static struct added {
    const struct sp_schedule_def *def;
    const struct sp_schedule_owner *owner;
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

static const char *options_of(const char *name)
{
    const char *colon = strchr(name, ':');

    return colon ? colon + 1 : "";
}

bool sp_schedule_flag(const char *name, const char *flag)
{
    return sp_list_has(options_of(name), flag, strlen(flag));
}

bool sp_schedule_is_searched(const char *name)
{
    return sp_schedule_flag(name, "auto") || sp_schedule_flag(name, "bounded") ||
           strstr(name, "=auto");
}

int sp_schedule_tensors(const char *name)
{
    const struct sp_schedule_def *def = sp_schedule_find(name);

    return def && !strcmp(def->family, "attention-parallel") && !strstr(name, "ship=attention") ? 2
                                                                                                : 1;
}

static const struct sp_family *family_of(const char *name)
{
    const struct sp_schedule_def *def = sp_schedule_find(name);

    return def ? sp_family_find(def->family) : NULL;
}

bool sp_schedule_takes_slices(const char *name)
{
    const struct sp_family *family = family_of(name);

    return family && family->facts.slices;
}

bool sp_schedule_wants_slices(const char *name)
{
    return sp_schedule_takes_slices(name) && !family_of(name)->facts.parts;
}

bool sp_schedule_is_synchronous(const char *name)
{
    const struct sp_family *family = family_of(name);

    return !family || !family->facts.stashes;
}

bool sp_schedule_shares_vocabulary(const char *name)
{
    const struct sp_family *family = family_of(name);
    const struct sp_layout lay = {.options = options_of(name), .vocabulary_parallel = 1};

    return family && sp_family_variant(family, &lay)->insert_ops;
}

bool sp_schedule_deals_layers(const char *name)
{
    const struct sp_family *family = family_of(name);

    return family && family->facts.layers != SP_LAYERS_DEALT &&
           family->facts.layers != SP_LAYERS_ALIKE &&
           strcmp(sp_schedule_find(name)->name, "adapipe") != 0; /* chooses its own */
}

const char *sp_schedule_recompute(const char *name, const char *given)
{
    const struct sp_schedule_def *def = sp_schedule_find(name);

    if (given)
        return given;
    return def && def->recompute ? def->recompute : "none";
}

int sp_schedule_add(const struct sp_schedule_def *def, const struct sp_schedule_owner *owner)
{
    struct added *more = realloc(added, ((size_t)n_added + 1) * sizeof *added);

    if (!more)
        return sp_error(ENOMEM, "no memory for schedule %s", def->name);
    added = more;
    added[n_added++] = (struct added){def, owner};
    return 0;
}

const struct sp_schedule_owner *sp_schedule_owner(const struct sp_schedule_def *def)
{
    for (int i = 0; i < n_added; i++) {
        if (added[i].def == def)
            return added[i].owner;
    }
    return NULL;
}

const char *sp_schedule_plugin(const struct sp_schedule_def *def)
{
    const struct sp_schedule_owner *owner = sp_schedule_owner(def);

    return owner ? owner->file : NULL;
}

const struct sp_family *sp_family_variant(const struct sp_family *family,
                                          const struct sp_layout *lay)
{
    return sp_vocabulary_variant(lay, family->variant ? family->variant(lay) : family);
}
