#include "plan/simulation/variation.h"
#include "policies/plan.h"
#include "sp_error.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- factors --------------------------------------------------------------------------------- */

void sp_variation_apply(const struct sp_variation *v, const struct sp_plan *plan,
                        double *const *by_op, int arrays)
{
    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            int id = plan->family->id(&plan->layout, s, &plan->programs[s].ops[k]);
            double factor = sp_variation_factor(v, s, k);

            for (int i = 0; i < arrays; i++)
                if (by_op[i])
                    by_op[i][id] *= factor;
        }
}

/* ---- the slow link --------------------------------------------------------------------------- */

static struct sp_route route_varied(const void *arg, const struct sp_step_message *m)
{
    const struct sp_varied_network *varied = arg;
    const struct sp_variation *v = varied->variation;
    struct sp_route r = varied->network->route(varied->network->arg, m);
    int low = m->from < m->to ? m->from : m->to, high = m->from + m->to - low;

    if (sp_step_message_is_sent(m) && low == v->slow_link && high == low + 1) {
        r.busy *= v->link_by;
        r.delay *= v->link_by;
    }
    return r;
}

static bool is_shared_varied(const void *arg, const struct sp_step_message *m)
{
    const struct sp_varied_network *varied = arg;

    return varied->network->is_shared && varied->network->is_shared(varied->network->arg, m);
}

struct sp_network sp_network_varied(const struct sp_varied_network *varied)
{
    struct sp_network network = *varied->network;

    if (varied->variation->link_by <= 0)
        return network;
    network.route = route_varied;
    network.is_shared = is_shared_varied;
    network.arg = varied;
    return network;
}

/* ---- reading --------------------------------------------------------------------------------- */

enum { UNIFORM, LOGNORMAL, SEED, STAGE, LINK, KEYS };
static const struct {
    const char *name, *wants;
} keys[KEYS] = {{"uniform", "a number in 0 .. 1"},
                {"lognormal", "a number in 0 .. 10"},
                {"seed", "a whole number in 0 .. 1e15"},
                {"stage", "a stage and how many times as long, as 2x1.5"},
                {"link", "a stage before the last and how many times as long, as 0x4"}};

static bool read_number(const char *text, double most, double *value)
{
    char *end;

    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value) && *value >= 0 && *value <= most;
}

/* "2x1.5" */
static bool read_place(const char *text, int places, int *place, double *by)
{
    char *end;
    long at = strtol(text, &end, 10);

    if (end == text || *end != 'x' || at < 0 || at >= places || text[0] == '-' || text[0] == '+')
        return false;
    *place = (int)at;
    return read_number(end + 1, 1e6, by) && *by > 0;
}

static bool read_value(int key, const char *text, int stages, struct sp_variation *v)
{
    double seed;

    switch (key) {
    case UNIFORM:
        return read_number(text, 1, &v->uniform);
    case LOGNORMAL:
        return read_number(text, 10, &v->lognormal);
    case SEED:
        if (!read_number(text, 1e15, &seed) || seed != floor(seed))
            return false;
        v->seed = (uint64_t)seed;
        return true;
    case STAGE:
        return read_place(text, stages, &v->slow_stage, &v->stage_by);
    default:
        return read_place(text, stages - 1, &v->slow_link, &v->link_by);
    }
}

int sp_variation_parse(const char *command, const char *text, int stages, struct sp_variation *v)
{
    bool given[KEYS] = {false};

    *v = (struct sp_variation){.seed = 1};
    for (const char *at = text; *at;) {
        int item = (int)strcspn(at, ","), len = (int)strcspn(at, "=,"), key = 0;
        char value[64];

        while (key < KEYS &&
               ((int)strlen(keys[key].name) != len || strncmp(keys[key].name, at, (size_t)len)))
            key++;
        if (len == item || key == KEYS)
            return sp_error(EINVAL,
                            "%s: --vary: '%.*s' is not one of uniform=, lognormal=, seed=, stage=, "
                            "link=",
                            command, item, at);
        if (given[key])
            return sp_error(EINVAL, "%s: --vary: %s is given twice", command, keys[key].name);
        given[key] = true;
        snprintf(value, sizeof value, "%.*s", item - len - 1, at + len + 1);
        if (!read_value(key, value, stages, v))
            return sp_error(EINVAL, "%s: --vary: %s=%s is not %s", command, keys[key].name, value,
                            keys[key].wants);
        at += item;
        if (*at == ',')
            at++;
    }
    if (given[SEED] && v->uniform <= 0 && v->lognormal <= 0)
        return sp_error(EINVAL,
                        "%s: --vary: seed= draws nothing without uniform= or lognormal=", command);
    if (v->uniform <= 0 && v->lognormal <= 0 && v->stage_by <= 0 && v->link_by <= 0)
        return sp_error(EINVAL, "%s: --vary %s varies nothing", command, text);
    return 0;
}
