#include "plan/simulation/flows.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* ---- by their end ------------------------------------------------------------------------------- */

static bool earlier(const struct sp_flows *f, int a, int b)
{
    return f->flow[a].ends != f->flow[b].ends ? f->flow[a].ends < f->flow[b].ends : a < b;
}

static void put(struct sp_flows *f, int flow, int at)
{
    f->heap[at] = flow;
    f->flow[flow].at = at;
}

/* Moves a flow of the heap to where its end belongs. */
static void settle(struct sp_flows *f, int flow)
{
    int i = f->flow[flow].at;

    for (; i > 0 && earlier(f, flow, f->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(f, f->heap[(i - 1) / 2], i);
    for (int child; (child = 2 * i + 1) < f->n; i = child) {
        if (child + 1 < f->n && earlier(f, f->heap[child + 1], f->heap[child]))
            child++;
        if (!earlier(f, f->heap[child], flow))
            break;
        put(f, f->heap[child], i);
    }
    put(f, flow, i);
}

/* ---- of a port ---------------------------------------------------------------------------------- */

/* Port numbers differ for the two sides of a flow, or are one of half a duplex. */
static int side(const struct sp_flow *m, int port)
{
    return m->out == port ? 0 : 1;
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

/* The rates of all flows of a port from now on. */
static void share(struct sp_flows *f, int port, double now)
{
    for (int i = f->first[port]; i >= 0; i = f->flow[i].next[side(&f->flow[i], port)]) {
        struct sp_flow *m = &f->flow[i];
        int out = f->count[m->out], in = f->count[m->in];
        double rate = 1.0 / (out > in ? out : in);

        if (rate == m->rate)
            continue;
        m->left = fmax(0, m->left - m->rate * (now - m->since));
        m->since = now;
        m->rate = rate;
        m->ends = now + m->left / rate;
        settle(f, i);
    }
}

/* ---- flows ---------------------------------------------------------------------------------------- */

int sp_flows_create(struct sp_flows *f, int ports, int flows)
{
    *f = (struct sp_flows){.flow = calloc((size_t)flows + 1, sizeof *f->flow),
                           .first = malloc(((size_t)ports + 1) * sizeof *f->first),
                           .count = calloc((size_t)ports + 1, sizeof *f->count),
                           .heap = malloc(((size_t)flows + 1) * sizeof *f->heap),
                           .waits = malloc(2 * ((size_t)ports + 1) * sizeof *f->waits)};
    if (!f->flow || !f->first || !f->count || !f->heap || !f->waits)
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
    free(f->heap);
    free(f->waits);
    *f = (struct sp_flows){0};
}

static bool pair_flows(const struct sp_flows *f, int out, int in)
{
    for (int i = f->first[out]; i >= 0; i = f->flow[i].next[side(&f->flow[i], out)])
        if (f->flow[i].out == out && f->flow[i].in == in)
            return true;
    return false;
}

static void begin(struct sp_flows *f, int flow, double now)
{
    struct sp_flow *m = &f->flow[flow];

    m->rate = 0;
    m->since = now;
    m->ends = INFINITY;
    put(f, flow, f->n++);
    link_to(f, flow, m->out);
    if (m->in != m->out)
        link_to(f, flow, m->in);
    share(f, m->out, now);
    if (m->in != m->out)
        share(f, m->in, now);
}

void sp_flows_begin(struct sp_flows *f, int flow, int out, int in, double busy, double now)
{
    f->flow[flow] =
        (struct sp_flow){.out = out, .in = in, .left = busy, .next = {-1, -1}, .at = -1};
    if (!pair_flows(f, out, in)) {
        begin(f, flow, now);
    } else if (f->waits[out] < 0) {
        f->waits[out] = f->waits_end[out] = flow;
    } else {
        f->flow[f->waits_end[out]].next[0] = flow;
        f->waits_end[out] = flow;
    }
}

/* The next flow of a pair, no more waiting; -1: there is none. */
static int next_of(struct sp_flows *f, int out, int in)
{
    int before = -1, flow = f->waits[out];

    for (; flow >= 0 && f->flow[flow].in != in; flow = f->flow[flow].next[0])
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
    return f->n ? f->heap[0] : -1;
}

void sp_flows_end(struct sp_flows *f, int flow)
{
    struct sp_flow *m = &f->flow[flow];
    int last = f->heap[--f->n], at = m->at, next;

    if (last != flow) {
        put(f, last, at);
        settle(f, last);
    }
    m->at = -1;
    unlink_from(f, flow, m->out);
    if (m->in != m->out)
        unlink_from(f, flow, m->in);
    share(f, m->out, m->ends);
    if (m->in != m->out)
        share(f, m->in, m->ends);
    next = next_of(f, m->out, m->in);
    if (next >= 0)
        begin(f, next, m->ends);
}
