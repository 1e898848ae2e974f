/* Machines whose nodes are of several kinds. */
#include "plan/machine/fields.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Machines that others point to; they live until the end of the program. */
static struct kept {
    struct kept *next;
    struct sp_machine machine;
    char name[];
} * kept;

int sp_machine_keep(const struct sp_machine *m, const char *name, size_t n, struct sp_nodes *nodes)
{
    struct kept *k = calloc(1, sizeof *k + n + 1);

    if (!k)
        return sp_error(ENOMEM, "machine %s: no memory for it", m->name);
    k->machine = *m;
    k->next = kept;
    kept = k;
    memcpy(k->name, name ? name : "", name ? n : 0);
    nodes->machine = &k->machine;
    nodes->named = name ? k->name : NULL;
    return 0;
}

/* ---- choosing a machine ---------------------------------------------------------------------- */

int sp_machine_nodes(const struct sp_machine *m)
{
    int n = 0;

    for (int k = 0; k < m->kinds; k++)
        n += m->kind[k].count;
    return n;
}

const struct sp_machine *sp_machine_of_node(const struct sp_machine *m, int node)
{
    int k = 0;

    if (!m->kinds)
        return m;
    for (; k < m->kinds - 1 && node >= m->kind[k].count; k++)
        node -= m->kind[k].count;
    return m->kind[k].machine;
}

/* The rate of a product of a size that long sequences have. */
static double speed(const struct sp_machine *m)
{
    const double flops = 1e11;

    return sp_curve_rate(&m->rates.matmul[SP_BF16], flops);
}

const struct sp_machine *sp_machine_of_devices(const struct sp_machine *m, int64_t first,
                                               int64_t devices)
{
    int64_t from = first / m->devices_per_node, to = (first + devices - 1) / m->devices_per_node;
    const struct sp_machine *slowest;

    if (!m->kinds)
        return m;
    slowest = sp_machine_of_node(m, (int)from);
    for (int64_t node = from + 1; node <= to; node++) {
        const struct sp_machine *other = sp_machine_of_node(m, (int)node);

        slowest = speed(other) < speed(slowest) ? other : slowest;
    }
    return slowest;
}

/* ---- joining kinds --------------------------------------------------------------------------- */

static void slow_link(struct sp_link *l, const struct sp_link *other)
{
    double latency_s = fmax(l->latency_s, other->latency_s);

    if (other->bandwidth / other->shared_by < l->bandwidth / l->shared_by)
        *l = *other;
    l->latency_s = latency_s;
}

static int64_t less(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int check(const char *where, const struct sp_machine *a, const struct sp_machine *b)
{
    if (sp_machine_is_cpu(a) != sp_machine_is_cpu(b))
        return sp_error(EINVAL, "machine %s: %s has cores and %s GPUs; a list takes one of them",
                        where, sp_machine_is_cpu(a) ? a->name : b->name,
                        sp_machine_is_cpu(a) ? b->name : a->name);
    if (a->devices_per_node != b->devices_per_node)
        return sp_error(EINVAL,
                        "machine %s: nodes of %s have %d devices, those of %s %d; a list takes "
                        "nodes of as many devices",
                        where, a->name, a->devices_per_node, b->name, b->devices_per_node);
    return 0;
}

/* Takes over the figures that are slower in other nodes. */
static void slow_down(struct sp_machine *m, const struct sp_machine *other)
{
    struct sp_copy_rates *c = &m->copy;
    struct sp_disk_rates *d = &m->disk;

    if (speed(other) < speed(m)) {
        m->rates = other->rates;
        memcpy(m->team, other->team, sizeof m->team);
        m->teams = other->teams;
        memcpy(m->device, other->device, sizeof m->device);
    }
    m->memory_bytes = less(m->memory_bytes, other->memory_bytes);
    m->host_bytes = less(m->host_bytes, other->host_bytes);
    m->host_rate = fmin(m->host_rate, other->host_rate);
    if (other->copy.both / other->copy.shared_by < c->both / c->shared_by)
        *c = other->copy;
    if (other->disk.both < d->both)
        *d = other->disk;
    slow_link(&m->node, &other->node);
    slow_link(&m->network, &other->network);
}

int sp_machine_join(const char *where, const struct sp_nodes *kind, int kinds, struct sp_machine *m)
{
    struct sp_machine all = *kind[0].machine;
    char name[sizeof all.name];

    snprintf(name, sizeof name, "%s", where);
    for (int k = 1; k < kinds; k++) {
        int err = check(where, &all, kind[k].machine);

        if (err)
            return err;
        slow_down(&all, kind[k].machine);
    }
    memcpy(all.name, name, sizeof name);
    all.kinds = kinds;
    memcpy(all.kind, kind, (size_t)kinds * sizeof *kind);
    *m = all;
    return 0;
}

/* ---- orders ---------------------------------------------------------------------------------- */

int sp_machine_orders(const struct sp_machine *m, struct sp_machine *order)
{
    static const int perm[SP_MACHINE_ORDERS][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1},
                                                   {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    int n = m->kinds < 2 ? 1 : m->kinds == 3 ? 6 : 2;

    for (int k = 0; k < m->kinds; k++)
        n = m->kind[k].named ? n : 1;
    for (int i = 0; i < n; i++) {
        char list[sizeof m->name];

        order[i] = *m;
        for (int k = 0; i > 0 && k < m->kinds; k++)
            order[i].kind[k] = m->kind[m->kinds <= 3 ? perm[i][k] : m->kinds - 1 - k];
        if (i > 0) { /* itself keeps its name; its kinds may have none */
            sp_machine_list(&order[i], list, sizeof list);
            memcpy(order[i].name, list, sizeof list);
        }
    }
    return n;
}

void sp_machine_list(const struct sp_machine *m, char *text, size_t n)
{
    size_t at = 0;

    *text = 0;
    for (int k = 0; k < m->kinds && at < n; k++)
        at += (size_t)snprintf(text + at, n - at, "%s%s:%d", k ? "," : "", m->kind[k].named,
                               m->kind[k].count);
}
