/* The processes of a run, and when a message between two of them was on its way. */
#ifndef SP_WORLD_H
#define SP_WORLD_H

struct sp_world {
    int rank, size;           /* of all processes */
    int node_rank, node_size; /* among the processes of this machine */
};

/* When one end of a message did its steps, in microseconds of CLOCK_REALTIME (of simulated time
 * in simulated runs); 0: not known. */
struct sp_transfer {
    double ready_us; /* its buffer was written, or free to be received in */
    double begun_us; /* it was given to the network, or its receive was posted */
    double ended_us; /* it had gone, or had arrived */
};

#endif
