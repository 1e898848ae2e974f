/*
 * What tasks take where runs are simulated. An op has a time, from a cost model; its tasks share it, so that
 * their sum is the op's whatever else they overlap with. Ops that overlap are one unit, with the time of
 * both. How long a task takes is known when all tasks are submitted: workers must not start before.
 */
#ifndef SP_SIMULATED_H
#define SP_SIMULATED_H

#include <stdbool.h>
#include <starpu.h>

enum sp_share {
    /*
     * As the list simulation has it: an op computes when all it waits for is there, and what others wait
     * for leaves when it has computed. Its time goes, in equal parts, to the tasks from the last one that
     * is the first to read something received, to the first one that writes something sent; where these
     * are the wrong way round, to all tasks.
     */
    SP_SHARE_WHOLE,
    SP_SHARE_FLOPS /* by the operations of each task */
};

struct sp_op_time {
    double us;                /* given: of all its tasks */
    enum sp_share share;      /* given */
    struct sp_op_time *leads; /* given: the first op of its unit; NULL: it is that */
    int tasks;                /* of the unit; counted as they are submitted, as are the others */
    double flops;
    int last_input;   /* number of a task */
    int first_output; /* likewise, counted from 1; 0: nothing is sent */
};

/* Counts a task with its op, before it is submitted, with all its buffers. */
void sp_simulated_add(struct starpu_task *task);

/* A buffer is received in, or sent from, at this place of the order of submission. No op begins with what another member
 * of its stage sends: that does not `begin` one. */
void sp_simulated_received(starpu_data_handle_t handle, bool begins);
void sp_simulated_sent(starpu_data_handle_t handle);

/* Forgets all buffers. */
void sp_simulated_forget(void);

/* A performance model of StarPU: what a task takes, never 0, which would be no model. */
double sp_simulated_us(struct starpu_task *task, struct starpu_perfmodel_arch *arch, unsigned impl);

#endif
