/*
 * Messages that share ports, as flows: those from one port into another follow each other; a port gives each
 * of its flows an equal part of its rate, and a flow goes at the lesser of what its two ports give it. Pure.
 */
#ifndef SP_FLOWS_H
#define SP_FLOWS_H

#include "policies/simulation/heap.h"

/* A flow from one port into another. */
struct sp_flow {
    int port[2];        /* out of it, into it */
    double left;        /* time that it still takes at the whole rate of its ports */
    double rate, since; /* part of that rate, and from when on */
    double ends;
    int next[2], prev[2]; /* flows of the same ports, -1: none; next[0] too of those that wait */
};

struct sp_flows {
    struct sp_flow *flow; /* [flows] */
    int *first, *count;   /* [ports] */
    int *waits;           /* [ports] the first flow out of it that waits, -1: none */
    int *waits_end;       /* [ports] the last one */
    struct sp_heap heap;  /* those that flow, by their end */
};

/* 0 or -ENOMEM. */
int sp_flows_create(struct sp_flows *f, int ports, int flows);
void sp_flows_destroy(struct sp_flows *f);

/* A flow is ready that would take `busy` alone. Times never go back. */
void sp_flows_begin(struct sp_flows *f, int flow, int out, int in, double busy, double now);

/* The flow that ends first, -1: there is none. It ends by sp_flows_end. */
int sp_flows_first(const struct sp_flows *f);
void sp_flows_end(struct sp_flows *f, int flow);

#endif
