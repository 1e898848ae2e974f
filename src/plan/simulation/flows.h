/*
 * Simulates messages that share ports as flows. Flows from one port into another follow each other;
 * a port gives each of its flows an equal part of its rate, and a flow has the lesser of the rates
 * that its two ports give it. Pure.
 */
#ifndef SP_FLOWS_H
#define SP_FLOWS_H

#include "policies/simulation/heap.h"

/* A flow from one port into another. */
struct sp_flow {
    int port[2];        /* the one it leaves, the one it enters */
    double left;        /* time that it still needs at the full rate of its ports */
    double rate, since; /* its part of that rate, and since when */
    double ends;
    int next[2], prev[2]; /* flows of the same ports, -1: none; next[0]: also of those waiting */
};

struct sp_flows {
    struct sp_flow *flow; /* [flows] */
    int *first, *count;   /* [ports] */
    int *waits;           /* [ports] the first waiting flow out of each, -1: none */
    int *waits_end;       /* [ports] the last one */
    struct sp_heap heap;  /* active flows by their end */
};

/* 0 or -ENOMEM. */
int sp_flows_create(struct sp_flows *f, int ports, int flows);
void sp_flows_destroy(struct sp_flows *f);

/* Starts a flow that would take `busy` alone, or lets it wait. `now` never decreases. */
void sp_flows_begin(struct sp_flows *f, int flow, int out, int in, double busy, double now);

/* The flow that ends first, -1: there is none. The caller ends it with sp_flows_end. */
int sp_flows_first(const struct sp_flows *f);
void sp_flows_end(struct sp_flows *f, int flow);

#endif
