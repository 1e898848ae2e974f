#include "plan/simulation/flows.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static bool earlier(const void *arg, int a, int b)
{
    const struct sp_flows *f = arg;

    return f->flow[a].ends != f->flow[b].ends ? f->flow[a].ends < f->flow[b].ends : a < b;
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* Devices that share a half-duplex interface share its one port. */
static int ports_of(const struct sp_flow *m)
{
    return m->port[0] == m->port[1] ? 1 : 2;
}

static int side(const struct sp_flow *m, int port)
{
    return m->port[0] == port ? 0 : 1;
}

static void link_to(struct sp_flows *f, int flow, int port)
{
    int k = side(&f->flow[flow], port), first = f->first[port];

    f->flow[flow].next[k] = first;
    f->flow[flow].prev[k] = -1;
    if (first >= 0)
        f->flow[first].prev[side(&f->flow[first], port)] = flow;
    f->first[port] = flow;
    f->count[port]++;
}

static void unlink_from(struct sp_flows *f, int flow, int port)
{
    const struct sp_flow *m = &f->flow[flow];
    int k = side(m, port), next = m->next[k], prev = m->prev[k];

    if (prev >= 0)
        f->flow[prev].next[side(&f->flow[prev], port)] = next;
    else
        f->first[port] = next;
    if (next >= 0)
        f->flow[next].prev[side(&f->flow[next], port)] = prev;
    f->count[port]--;
}

/* Updates the rates of all flows of a port from now on. */
static void share_port(struct sp_flows *f, int port, double now)
{
    for (int i = f->first[port]; i >= 0; i = f->flow[i].next[side(&f->flow[i], port)]) {
        struct sp_flow *m = &f->flow[i];
        int out = f->count[m->port[0]], in = f->count[m->port[1]];
        double rate = 1.0 / (out > in ? out : in);

        if (rate == m->rate)
            continue;
        m->left = fmax(0, m->left - m->rate * (now - m->since));
        m->since = now;
        m->rate = rate;
        m->ends = now + m->left / rate;
        sp_heap_settle(&f->heap, i, f->heap.at[i], earlier, f);
    }
}

static void share(struct sp_flows *f, const struct sp_flow *m, double now)
{
    for (int k = 0; k < ports_of(m); k++)
        share_port(f, m->port[k], now);
}

/* ---- flows ----------------------------------------------------------------------------------- */

int sp_flows_create(struct sp_flows *f, int ports, int flows)
{
    *f = (struct sp_flows){.flow = calloc((size_t)flows + 1, sizeof *f->flow),
                           .first = malloc(((size_t)ports + 1) * sizeof *f->first),
                           .count = calloc((size_t)ports + 1, sizeof *f->count),
                           .heap.item = malloc(((size_t)flows + 1) * sizeof *f->heap.item),
                           .heap.at = malloc(((size_t)flows + 1) * sizeof *f->heap.at),
                           .waits = malloc(2 * ((size_t)ports + 1) * sizeof *f->waits)};
    if (!f->flow || !f->first || !f->count || !f->heap.item || !f->heap.at || !f->waits)
        return -ENOMEM;
    f->waits_end = f->waits + ports;
    for (int i = 0; i < ports; i++)
        f->first[i] = f->waits[i] = f->waits_end[i] = -1;
    return 0;
}

void sp_flows_destroy(struct sp_flows *f)
{
    free(f->flow);
    free(f->first);
    free(f->count);
    free(f->heap.item);
    free(f->heap.at);
    free(f->waits);
    *f = (struct sp_flows){0};
}

static bool pair_flows(const struct sp_flows *f, int out, int in)
{
    for (int i = f->first[out]; i >= 0; i = f->flow[i].next[side(&f->flow[i], out)])
        if (f->flow[i].port[0] == out && f->flow[i].port[1] == in)
            return true;
    return false;
}

static void begin(struct sp_flows *f, int flow, double now)
{
    struct sp_flow *m = &f->flow[flow];

    m->rate = 0;
    m->since = now;
    m->ends = INFINITY;
    sp_heap_push(&f->heap, flow, earlier, f);
    for (int k = 0; k < ports_of(m); k++)
        link_to(f, flow, m->port[k]);
    share(f, m, now);
}

void sp_flows_begin(struct sp_flows *f, int flow, int out, int in, double busy, double now)
{
    f->flow[flow] = (struct sp_flow){.port = {out, in}, .left = busy, .next = {-1, -1}};
    if (!pair_flows(f, out, in)) {
        begin(f, flow, now);
    } else if (f->waits[out] < 0) {
        f->waits[out] = f->waits_end[out] = flow;
    } else {
        f->flow[f->waits_end[out]].next[0] = flow;
        f->waits_end[out] = flow;
    }
}

/* Takes the next waiting flow of a pair of ports; -1: there is none. */
static int next_of(struct sp_flows *f, int out, int in)
{
    int before = -1, flow = f->waits[out];

    for (; flow >= 0 && f->flow[flow].port[1] != in; flow = f->flow[flow].next[0])
        before = flow;
    if (flow < 0)
        return -1;
    *(before < 0 ? &f->waits[out] : &f->flow[before].next[0]) = f->flow[flow].next[0];
    if (f->waits_end[out] == flow)
        f->waits_end[out] = before;
    return flow;
}

int sp_flows_first(const struct sp_flows *f)
{
    return f->heap.n ? f->heap.item[0] : -1;
}

void sp_flows_end(struct sp_flows *f, int flow)
{
    const struct sp_flow *m = &f->flow[flow];
    int next;

    sp_heap_remove(&f->heap, f->heap.at[flow], earlier, f);
    for (int k = 0; k < ports_of(m); k++)
        unlink_from(f, flow, m->port[k]);
    share(f, m, m->ends);
    next = next_of(f, m->port[0], m->port[1]);
    if (next >= 0)
        begin(f, next, m->ends);
}
