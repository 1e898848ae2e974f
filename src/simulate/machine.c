#include "simulate/machine.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct sp_sim_machine sp_sim_machine_default = {
    .unit_s = 1, .node = {.shared_by = 1}, .network = {.shared_by = 1}};

struct sp_sim_machine sp_sim_machine_of(const struct sp_machine *m)
{
    return (struct sp_sim_machine){.unit_s = 1e-3,
                                   .devices_per_node = m->devices_per_node,
                                   .node = m->node,
                                   .network = m->network};
}

/* How a value is read: as a number, or as the index of a word among those of its key. */
enum kind { NUMBER, COUNT, DUPLEX, SHARING };

static const struct {
    const char *refusal, *words[4];
} kinds[] = {[NUMBER] = {"not a number in 0 .. 1e18"},
             [COUNT] = {"not a number of devices in 0 .. 65536"},
             [DUPLEX] = {"neither full nor half", {"full", "half"}},
             [SHARING] = {"none of queued, fair, free", {"queued", "fair", "free"}}};

static int take(enum kind kind, const char *key, const char *value, double *out)
{
    char *end;
    double v = strtod(value, &end);
    bool taken = end != value && !*end && isfinite(v) && v >= 0 && v <= 1e18;

    if (kind == COUNT)
        taken = taken && v == floor(v) && v <= 65536;
    else if (kind != NUMBER)
        taken = false;
    for (int i = 0; kinds[kind].words[i]; i++)
        if (!strcmp(value, kinds[kind].words[i])) {
            v = i;
            taken = true;
        }
    if (!taken)
        return sp_error(EINVAL, "link: %s=%s is %s", key, value, kinds[kind].refusal);
    *out = v;
    return 0;
}

/* The keys of a link, with or without the prefix "node_". */
enum { LATENCY, BANDWIDTH, DUPLEXITY, SHARED_BY, LINK_KEYS };
static const struct {
    const char *name;
    enum kind kind;
} link_keys[LINK_KEYS] = {
    {"latency", NUMBER}, {"bandwidth", NUMBER}, {"duplex", DUPLEX}, {"shared_by", COUNT}};

struct values {
    double devices, sharing, network[LINK_KEYS], node[LINK_KEYS]; /* NaN: not given */
};

static int parse_item(const char *key, const char *value, struct values *v)
{
    bool node = !strncmp(key, "node_", 5);

    if (!strcmp(key, "devices"))
        return take(COUNT, key, value, &v->devices);
    if (!strcmp(key, "sharing"))
        return take(SHARING, key, value, &v->sharing);
    for (int i = 0; i < LINK_KEYS; i++)
        if (!strcmp(node ? key + 5 : key, link_keys[i].name))
            return take(link_keys[i].kind, key, value, node ? &v->node[i] : &v->network[i]);
    return sp_error(EINVAL,
                    "link: '%s' is not one of devices, latency, bandwidth, duplex, shared_by, "
                    "node_latency, node_bandwidth, node_duplex, node_shared_by, sharing",
                    key);
}

static void apply(const double v[LINK_KEYS], struct sp_link *l)
{
    if (!isnan(v[LATENCY]))
        l->latency_s = v[LATENCY];
    if (!isnan(v[BANDWIDTH]))
        l->bandwidth = v[BANDWIDTH];
    if (!isnan(v[DUPLEXITY]))
        l->half_duplex = v[DUPLEXITY] > 0;
    if (!isnan(v[SHARED_BY]))
        l->shared_by = (int)v[SHARED_BY];
}

/* Converts latencies, which are given in the unit of the costs, to seconds. */
static void scale(double v[LINK_KEYS], double unit_s)
{
    v[LATENCY] *= unit_s;
    v[BANDWIDTH] /= unit_s;
}

int sp_sim_machine_parse(const char *text, struct sp_sim_machine *machine)
{
    struct sp_sim_machine m = *machine;
    struct values v = {NAN, NAN, {NAN, NAN, NAN, NAN}, {NAN, NAN, NAN, NAN}};

    while (*text) {
        int item = (int)strcspn(text, ","), len = (int)strcspn(text, "=,"), err;
        char key[64], value[64];

        snprintf(key, sizeof key, "%.*s", len, text);
        snprintf(value, sizeof value, "%.*s", len < item ? item - len - 1 : 0, text + len + 1);
        err = parse_item(key, value, &v);
        if (err)
            return err;
        text += item;
        if (*text == ',')
            text++;
    }
    scale(v.network, m.unit_s);
    scale(v.node, m.unit_s);
    if (!isnan(v.devices))
        m.devices_per_node = (int)v.devices;
    if (!isnan(v.sharing))
        m.sharing = (enum sp_sharing)v.sharing;
    apply(v.network, &m.network);
    apply(v.network, &m.node);
    apply(v.node, &m.node);
    *machine = m;
    return 0;
}
